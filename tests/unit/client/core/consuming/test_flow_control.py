"""Flow control: when a queue is not pulled, and why."""

from __future__ import annotations

from dataclasses import dataclass

from orbitmq.client.core.consuming.flow_control import MIB, WARN_EVERY, FlowControl, FlowLimits
from orbitmq.model.queues import MessageQueue

QUEUE = MessageQueue(topic="orders", broker_name="broker-a", queue_id=3)


@dataclass
class Window:
    count: int = 0
    bytes: int = 0
    span: int = 0


def test_a_queue_is_pulled_up_to_the_limits() -> None:
    full = Window(count=1000, bytes=100 * MIB, span=2000)

    assert FlowControl(FlowLimits()).pause(QUEUE, full) is None


def test_a_pause_carries_reason_queue_and_amount() -> None:
    control = FlowControl(FlowLimits())

    pause = control.pause(QUEUE, Window(count=1001, bytes=7))

    assert pause is not None
    assert pause.reason == (
        "more than 1000 messages are unfinished "
        "topic=orders broker=broker-a queue=3 count=1001 bytes=7 pauses=1"
    )


def test_bytes_and_span_pause_too() -> None:
    control = FlowControl(FlowLimits())

    by_bytes = control.pause(QUEUE, Window(count=1, bytes=100 * MIB + 1))
    by_span = control.pause(QUEUE, Window(count=2, span=2001))

    assert by_bytes is not None
    assert "take more than 104857600 bytes" in by_bytes.reason
    assert by_span is not None
    assert "span more than 2000 offsets" in by_span.reason


def test_without_a_span_limit_any_span_is_allowed() -> None:
    assert FlowControl(FlowLimits(span=None)).pause(QUEUE, Window(count=2, span=10**6)) is None


def test_one_pause_of_a_thousand_is_a_warning() -> None:
    control = FlowControl(FlowLimits(count=1))

    pauses = [control.pause(QUEUE, Window(count=2)) for _ in range(2 * WARN_EVERY)]

    warned = [number for number, pause in enumerate(pauses) if pause is not None and pause.warn]
    assert warned == [0, WARN_EVERY]


def test_limits_of_all_queues_together_are_shared() -> None:
    control = FlowControl(FlowLimits(total_count=100, total_bytes=1000))

    control.set_queue_count(3)

    assert (control.current.count, control.current.bytes) == (33, 333)


def test_a_share_is_never_less_than_one() -> None:
    control = FlowControl(FlowLimits(total_count=2, total_bytes=2))

    control.set_queue_count(3)

    assert (control.current.count, control.current.bytes) == (1, 1)


def test_without_queues_or_common_limits_each_queue_has_its_own() -> None:
    limits = FlowLimits(total_count=5)
    control = FlowControl(limits)

    control.set_queue_count(0)
    assert control.current == limits

    plain = FlowControl(FlowLimits())
    plain.set_queue_count(3)
    assert plain.current == FlowLimits()
