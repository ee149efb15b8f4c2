"""Send rules: delays, features that are missing, waiting for the store."""

from __future__ import annotations

import pytest

from orbitmq.broker.send_rules import (
    Place,
    delay,
    delay_level,
    missing_feature,
    waits_for_store,
)

_PLACE = Place(topic="orders", queue_id=3)


def test_a_message_without_a_delay_stays_where_it_is() -> None:
    properties = {"TAGS": "a", "DELAY": "0"}

    assert delay(properties, _PLACE, 18) == _PLACE
    assert "REAL_TOPIC" not in properties


def test_a_delayed_message_goes_to_the_queue_of_its_level_and_knows_the_way_back() -> None:
    properties = {"DELAY": "3", "TIMER_DELAY_MS": "7"}

    place = delay(properties, _PLACE, 18)

    assert place == Place(topic="SCHEDULE_TOPIC_XXXX", queue_id=2)
    assert properties == {"DELAY": "3", "REAL_TOPIC": "orders", "REAL_QID": "3"}


def test_a_level_above_the_highest_is_the_highest() -> None:
    properties = {"DELAY": "99"}

    assert delay(properties, _PLACE, 18).queue_id == 17
    assert properties["DELAY"] == "18"


@pytest.mark.parametrize(("text", "level"), [("2", 2), ("-1", 0), ("soon", 0), ("", 0)])
def test_a_level_that_is_no_number_is_no_delay(text: str, level: int) -> None:
    assert delay_level({"DELAY": text}) == level


@pytest.mark.parametrize(
    ("properties", "feature"),
    [
        ({"TRAN_MSG": "true"}, "transactions"),
        ({"TRAN_MSG": "false"}, ""),
        ({"TIMER_DELIVER_MS": "5"}, "timers"),
        ({"TIMER_DELIVER_MS": "5", "DELAY": "1"}, ""),
        ({"REPLY_TO_CLIENT": "c"}, "requests that wait for a reply"),
        ({"KEYS": "k"}, ""),
    ],
)
def test_what_is_not_built_is_named(properties: dict[str, str], feature: str) -> None:
    assert missing_feature(properties) == feature


@pytest.mark.parametrize(("text", "waits"), [("true", True), ("false", False), ("FALSE", False)])
def test_a_producer_says_whether_it_waits(text: str, *, waits: bool) -> None:
    assert waits_for_store({"WAIT": text}) is waits
    assert waits_for_store({})
