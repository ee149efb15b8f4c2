"""Send rules: delays, unsupported features, waiting for the store."""

from __future__ import annotations

import pytest

from orbitmq.broker.send_rules import (
    Destination,
    delay,
    delay_level,
    has_plain_properties,
    waits_for_store,
    with_broker_properties,
)

_PLACE = Destination(topic="orders", queue_id=3)


def test_a_message_without_a_delay_stays_where_it_is() -> None:
    properties = {"TAGS": "a", "DELAY": "0"}

    assert delay(properties, _PLACE, 18) == _PLACE
    assert "REAL_TOPIC" not in properties


def test_a_delayed_message_goes_to_the_queue_of_its_level_and_keeps_its_destination() -> None:
    properties = {"DELAY": "3", "TIMER_DELAY_MS": "7"}

    place = delay(properties, _PLACE, 18)

    assert place == Destination(topic="SCHEDULE_TOPIC_XXXX", queue_id=2)
    assert properties == {"DELAY": "3", "REAL_TOPIC": "orders", "REAL_QID": "3"}


def test_a_level_above_the_highest_is_the_highest() -> None:
    properties = {"DELAY": "99"}

    assert delay(properties, _PLACE, 18).queue_id == 17
    assert properties["DELAY"] == "18"


@pytest.mark.parametrize(
    ("text", "level"),
    [("2", 2), ("+2", 2), ("007", 7), (str(2**31 - 1), 2**31 - 1)]
    + [(text, 0) for text in ("-1", "soon", "", "+", "1_0", " 3 ", "3\n", "٣", "²", str(2**31))],
)
def test_an_invalid_level_means_no_delay(text: str, level: int) -> None:
    assert delay_level({"DELAY": text}) == level


@pytest.mark.parametrize(("text", "waits"), [("true", True), ("false", False), ("FALSE", False)])
def test_a_producer_chooses_whether_it_waits(text: str, *, waits: bool) -> None:
    assert waits_for_store({"WAIT": text}) is waits
    assert waits_for_store({})


@pytest.mark.parametrize(
    ("properties", "is_plain"),
    [
        (b"UNIQ_KEY\x01A1\x02TAGS\x01a\x02", True),
        (b"TAGS\x01a\x02MY_DELAY\x011\x02UNIQ_KEY\x01A1", True),
        (b"", False),
        (b"TAGS\x01a\x02", False),
        (b"UNIQ_KEY\x01with space\x02", False),
        (b"UNIQ_KEY\x01A1\x02UNIQ_KEY\x01A2\x02", False),
        (b"UNIQ_KEY\x01A1\x02DELAY\x013\x02", False),
        (b"UNIQ_KEY\x01A1\x02CLUSTER\x01c\x02", False),
        (b"UNIQ_KEY\x01A1\x02TIMER_DELAY_MS\x015\x02", False),
    ],
)
def test_plain_properties_of_a_batch_are_distinguished_from_special_ones(
    properties: bytes, *, is_plain: bool
) -> None:
    assert has_plain_properties(properties) is is_plain


def test_the_brokers_properties_follow_a_separator() -> None:
    assert with_broker_properties(b"a\x01b", b"c\x01d\x02") == b"a\x01b\x02c\x01d\x02"
    assert with_broker_properties(b"a\x01b\x02", b"c\x01d\x02") == b"a\x01b\x02c\x01d\x02"
