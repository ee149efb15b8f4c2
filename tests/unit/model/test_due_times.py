"""Due times of messages, and handles to take them back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from orbitmq.errors import MessageError, RecallHandleError
from orbitmq.model.messages import Message
from orbitmq.model.recall_handles import RecallHandle

NEW_YEAR = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("arguments", "properties"),
    [
        ({"deliver_at": NEW_YEAR}, {"TIMER_DELIVER_MS": "1893456000000"}),
        (
            {"deliver_at": NEW_YEAR.astimezone(timezone(timedelta(hours=5)))},
            {"TIMER_DELIVER_MS": "1893456000000"},
        ),
        (
            {"deliver_at": NEW_YEAR + timedelta(microseconds=1)},
            {"TIMER_DELIVER_MS": "1893456000001"},
        ),
        ({"delay": timedelta(seconds=2)}, {"TIMER_DELAY_MS": "2000"}),
        ({"delay": timedelta(microseconds=1)}, {"TIMER_DELAY_MS": "1"}),
        ({"delay": timedelta(0)}, {"TIMER_DELAY_MS": "0"}),
    ],
)
def test_a_due_time_becomes_a_property_and_is_never_early(
    arguments: dict[str, Any], properties: dict[str, str]
) -> None:
    message = Message("T", b"body", **arguments)

    assert message.has_due_time
    assert dict(message.reserved_properties) == properties


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"deliver_at": datetime(2030, 1, 1)}, "has no time zone"),  # noqa: DTZ001
        ({"deliver_at": 5}, "deliver_at"),
        ({"delay": 5}, "delay"),
        ({"delay": timedelta(seconds=-1)}, "cannot be"),
        ({"delay": timedelta(1), "deliver_at": NEW_YEAR}, "several of"),
        ({"delay": timedelta(1), "delay_level": 1}, "several of"),
    ],
)
def test_a_bad_due_time_is_refused(arguments: dict[str, Any], reason: str) -> None:
    with pytest.raises(MessageError, match=reason):
        Message("T", b"body", **arguments)


def test_the_property_is_set_by_an_argument() -> None:
    with pytest.raises(MessageError, match="deliver_at="):
        Message("T", b"body", properties={"TIMER_DELIVER_MS": "5"})


def test_a_handle_is_the_text_that_rocketmq_writes() -> None:
    handle = RecallHandle(topic="orders", broker_name="broker-a", time_ms=1001, unique_id="0A1B")

    assert handle.encode() == "djEgb3JkZXJzIGJyb2tlci1hIDEwMDEgMEExQg=="
    assert RecallHandle.decode(handle.encode()) == handle
    assert RecallHandle.decode(handle.encode().rstrip("=")) == handle


@pytest.mark.parametrize("text", ["", "x", "v1 a b 1 c", "djEgYQ==", "ü", "djEgYSBiIHggYw=="])
def test_another_text_is_no_handle(text: str) -> None:
    with pytest.raises(RecallHandleError, match="not valid"):
        RecallHandle.decode(text)
