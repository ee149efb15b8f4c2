"""Messages for listeners, without a broker."""

from __future__ import annotations

from dataclasses import replace

from orbitmq.client.aio.push.listener_failures import ListenerFailures
from orbitmq.client.aio.push.listeners import Finished, Listener, ListenerCall, ListenerRun
from orbitmq.client.core.consuming.consume_results import Reply
from orbitmq.client.core.consuming.inflight_window import InflightWindow
from orbitmq.client.core.consuming.received_message import ReceivedMessage, received_messages
from orbitmq.clock import Clock, ManualClock, SystemClock
from orbitmq.model.queues import MessageQueue
from orbitmq.record.properties import encode_properties
from tests.unit.record.sample_records import KNOWN

QUEUE = MessageQueue(broker_name="broker-a", queue_id=1, topic="orders")

Window = InflightWindow[ReceivedMessage]


def received(
    offset: int,
    body: bytes = b"a body",
    *,
    topic: str = "orders",
    properties: dict[str, str] | None = None,
    reconsume_times: int = 0,
) -> ReceivedMessage:
    """Make a message as it comes from a broker."""
    sample = replace(
        KNOWN,
        topic=topic.encode(),
        queue_id=QUEUE.queue_id,
        queue_offset=offset,
        physical_offset=offset * 1000,
        body=body,
        properties=encode_properties({"UNIQ_KEY": f"id-{offset}"} | (properties or {})),
        reconsume_times=reconsume_times,
    )
    (message,) = received_messages(sample.encode(), QUEUE.broker_name)
    return message


def several(first: int, count: int) -> list[ReceivedMessage]:
    """Make messages with consecutive offsets in one queue."""
    return [received(offset) for offset in range(first, first + count)]


def run_of(
    *batches: list[ReceivedMessage], window: Window | None = None, reports_end: bool = False
) -> ListenerRun:
    """Make a run that may always start."""
    window = window or InflightWindow(0, ManualClock())
    return ListenerRun(QUEUE, window, batches, reports_end=reports_end)


class NoReplies:
    """Fails when a listener replies."""

    async def send(self, message: ReceivedMessage, reply: Reply) -> None:
        """Fail."""
        self.send_from_thread(message, reply)

    def send_from_thread(self, message: ReceivedMessage, reply: Reply) -> None:
        """Fail."""
        raise AssertionError(f"reply {reply!r} to {message!r}")


def call_of(
    listener: Listener,
    *,
    ordered: bool = False,
    clock: Clock | None = None,
    slow_ms: float = 60_000,
    hooks: tuple[object, ...] = (),
) -> ListenerCall:
    """Make the call of a listener."""
    clock = clock or SystemClock()
    return ListenerCall(
        listener,
        group="billing",
        ordered=ordered,
        slow_ms=slow_ms,
        failures=ListenerFailures("billing", clock),
        hooks=hooks,  # type: ignore[arg-type]  # tests give hooks with the methods they need
        replies=NoReplies(),
        clock=clock,
    )


def offsets_of(finished: list[Finished]) -> list[int]:
    """The offsets of all messages that were finished, in the order of the calls."""
    return [message.queue_offset for item in finished for message in item.messages]
