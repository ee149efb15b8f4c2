"""The accumulator: which messages are sent together, when, and what each caller gets."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from orbitmq.client.aio.sending.accumulator import Accumulator, BatchKey, WaitingBatches
from orbitmq.client.core.sending.send_results import SendResult, SendStatus
from orbitmq.clock import ManualClock, settle
from orbitmq.errors import ConnectError, MessageError, StateError
from orbitmq.model.messages import Message
from orbitmq.model.queues import MessageQueue

QUEUE = MessageQueue(topic="orders", queue_id=3, broker_name="broker-a")
KEY = BatchKey("orders", None, True, None)  # a tuple of parts


class Sends:
    """Replies to sends, and records them."""

    def __init__(self) -> None:
        self.bodies: list[bytes | list[bytes]] = []
        self.queues: list[MessageQueue | None] = []
        self.timeouts_ms: list[float | None] = []
        self.error: Exception | None = None
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def __call__(
        self,
        message: Message | Sequence[Message],
        queue: MessageQueue | None,
        timeout_ms: float | None,
    ) -> SendResult:
        messages = [message] if isinstance(message, Message) else list(message)
        bodies = [each.body for each in messages]
        self.bodies.append(bodies[0] if isinstance(message, Message) else bodies)
        self.queues.append(queue)
        self.timeouts_ms.append(timeout_ms)
        await self.may_answer.wait()
        if b"bad" in bodies:
            raise MessageError("a bad message")
        if self.error is not None:
            raise self.error
        return SendResult(
            status=SendStatus.OK,
            message_id=",".join(f"id-{body.decode()}" for body in bodies),
            offset_message_id=",".join(f"at-{body.decode()}" for body in bodies),
            queue=queue or QUEUE,
            queue_offset=100,
        )


def _accumulator(sends: Sends, clock: ManualClock, **limits: int) -> Accumulator:
    return Accumulator(sends, clock, **limits)


async def test_messages_of_a_topic_are_sent_together_when_the_delay_is_over() -> None:
    sends, clock = Sends(), ManualClock()
    accumulator = _accumulator(sends, clock)
    first = asyncio.create_task(accumulator.add(Message("orders", b"one")))
    second = asyncio.create_task(accumulator.add(Message("orders", b"two")))

    await clock.advance(9)
    assert sends.bodies == []
    await clock.advance(1)

    assert sends.bodies == [[b"one", b"two"]]
    one, two = await first, await second
    assert (one.message_id, one.offset_message_id, one.queue_offset) == ("id-one", "at-one", 100)
    assert (two.message_id, two.offset_message_id, two.queue_offset) == ("id-two", "at-two", 101)


async def test_a_full_batch_is_sent_at_once() -> None:
    sends, clock = Sends(), ManualClock()
    accumulator = _accumulator(sends, clock, batch_bytes_max=1000)
    tasks = [
        asyncio.create_task(accumulator.add(Message("orders", b"%d" % number * 400)))
        for number in range(3)
    ]

    await asyncio.gather(*tasks[:2])

    assert [len(bodies) for bodies in sends.bodies] == [2]
    await clock.advance(10)
    assert (await tasks[2]).queue_offset == 100
    assert len(sends.bodies) == 2


async def test_messages_of_other_queues_and_topics_are_sent_apart() -> None:
    sends, clock = Sends(), ManualClock()
    accumulator = _accumulator(sends, clock)
    tasks = [
        asyncio.create_task(accumulator.add(Message("orders", b"1"))),
        asyncio.create_task(accumulator.add(Message("orders", b"2"), queue=QUEUE)),
        asyncio.create_task(accumulator.add(Message("bills", b"3"))),
        asyncio.create_task(accumulator.add(Message("orders", b"4", wait_store_ok=False))),
        asyncio.create_task(accumulator.add(Message("orders", b"5"), timeout_ms=500)),
    ]

    await clock.advance(10)
    await asyncio.gather(*tasks)

    assert sends.bodies == [b"1", b"2", b"3", b"4", b"5"]
    assert sends.queues == [None, QUEUE, None, None, None]
    assert sends.timeouts_ms == [None, None, None, None, 490]


async def test_a_message_that_no_batch_takes_is_sent_at_once() -> None:
    sends = Sends()
    accumulator = _accumulator(sends, ManualClock())

    result = await accumulator.add(Message("orders", b"late", delay_level=2), timeout_ms=700)

    assert result.message_id == "id-late"
    assert sends.bodies == [b"late"]
    assert sends.timeouts_ms == [700]


async def test_beyond_the_bound_messages_are_sent_at_once() -> None:
    sends, clock = Sends(), ManualClock()
    accumulator = _accumulator(sends, clock, held_bytes_max=100)
    waiting = asyncio.create_task(accumulator.add(Message("orders", b"one")))
    await settle()

    await accumulator.add(Message("orders", b"two"))

    assert sends.bodies == [b"two"]
    await clock.advance(10)
    await waiting
    third = asyncio.create_task(accumulator.add(Message("orders", b"three")))
    await settle()
    assert sends.bodies == [b"two", b"one"]
    await clock.advance(10)
    await third


async def test_an_error_of_the_send_reaches_every_caller() -> None:
    sends, clock = Sends(), ManualClock()
    sends.error = ConnectError("127.0.0.1:1", "refused")
    accumulator = _accumulator(sends, clock)
    tasks = [asyncio.create_task(accumulator.add(Message("orders", b"%d" % n))) for n in range(2)]

    await clock.advance(10)

    for task in tasks:
        with pytest.raises(ConnectError, match="refused"):
            await task


async def test_a_message_that_cannot_be_sent_does_not_fail_the_others() -> None:
    sends, clock = Sends(), ManualClock()
    accumulator = _accumulator(sends, clock)
    good = asyncio.create_task(accumulator.add(Message("orders", b"good")))
    bad = asyncio.create_task(accumulator.add(Message("orders", b"bad")))

    await clock.advance(10)

    assert (await good).message_id == "id-good"
    with pytest.raises(MessageError, match="a bad message"):
        await bad
    assert sends.bodies == [[b"good", b"bad"], b"good", b"bad"]


async def test_a_message_is_not_sent_if_its_caller_is_cancelled() -> None:
    sends, clock = Sends(), ManualClock()
    accumulator = _accumulator(sends, clock)
    kept = asyncio.create_task(accumulator.add(Message("orders", b"kept")))
    dropped = asyncio.create_task(accumulator.add(Message("orders", b"dropped")))
    alone = asyncio.create_task(accumulator.add(Message("bills", b"alone")))
    await settle()

    dropped.cancel()
    alone.cancel()
    await clock.advance(10)

    assert (await kept).message_id == "id-kept"
    assert sends.bodies == [b"kept"]


async def test_a_caller_cancelled_during_the_send_does_not_disturb_it() -> None:
    sends, clock = Sends(), ManualClock()
    sends.may_answer.clear()
    accumulator = _accumulator(sends, clock)
    kept = asyncio.create_task(accumulator.add(Message("orders", b"kept")))
    dropped = asyncio.create_task(accumulator.add(Message("orders", b"dropped")))
    await clock.advance(10)

    dropped.cancel()
    await settle()
    sends.may_answer.set()

    assert (await kept).message_id == "id-kept"


async def test_stop_sends_waiting_messages_and_refuses_new_ones() -> None:
    sends = Sends()
    accumulator = _accumulator(sends, ManualClock())
    waiting = asyncio.create_task(accumulator.add(Message("orders", b"one")))
    await settle()

    await accumulator.stop()

    assert (await waiting).message_id == "id-one"
    with pytest.raises(StateError, match="the producer is stopped"):
        await accumulator.add(Message("orders", b"two"))


# --- which messages may wait, and when a batch is full ---


def _batches(*, batch_bytes_max: int = 1000, held_bytes_max: int = 10_000) -> WaitingBatches[int]:
    return WaitingBatches(batch_bytes_max=batch_bytes_max, held_bytes_max=held_bytes_max)


def test_a_small_message_waits() -> None:
    assert _batches().takes(Message("orders", b"body"))


@pytest.mark.parametrize(
    "message",
    [
        Message("orders", b"body", delay_level=1),
        Message("orders", bytes(1000)),
        Message("%RETRY%billing", b"body"),
        Message("orders", b"body").with_reserved({"PGROUP": "group"}),
        "no message at all",
    ],
)
def test_a_message_that_no_batch_takes_does_not_wait(message: object) -> None:
    assert not _batches().takes(message)


def test_messages_do_not_wait_beyond_the_bound() -> None:
    batches = _batches(held_bytes_max=200)
    message = Message("orders", bytes(100))
    batch = batches.add(KEY, message, 1)

    assert not batches.takes(message)

    batches.release(batch)
    assert batches.held_bytes == 0
    assert batches.takes(message)


def test_messages_of_one_key_share_a_batch_until_it_is_closed() -> None:
    batches = _batches()
    message = Message("orders", b"body")

    first = batches.add(KEY, message, 1)
    assert batches.add(KEY, message, 2) is first
    assert batches.close(first)
    second = batches.add(KEY, message, 3)

    assert (first.waiting, second.waiting) == ([1, 2], [3])
    assert not batches.close(first)
    assert batches.open_batches() == [second]


def test_messages_of_other_keys_have_other_batches() -> None:
    batches = _batches()
    message = Message("orders", b"body")

    first = batches.add(KEY, message, 1)
    second = batches.add(KEY._replace(wait_store_ok=False), message, 2)

    assert first is not second
    assert batches.open_batches() == [first, second]


def test_a_batch_is_full_at_its_limit() -> None:
    batches = _batches(batch_bytes_max=1000)

    batch = batches.add(KEY, Message("orders", bytes(400)), 1)
    assert not batches.is_full(batch)
    batches.add(KEY, Message("orders", bytes(400)), 2)

    assert batches.is_full(batch)
