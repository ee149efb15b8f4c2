"""Parcels in flight: bounds, order within a queue, halves, failures."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from orbitmq.errors import FailedTry, OrbitError, RemoteError, SendRefusedError, StateError
from orbitmq.model.queues import MessageQueue
from orbitmq.protocol.codes import ResponseCode
from orbitmq.record.batch import BatchedMessage, decode_batch, encode_batch
from orbitmq.spark.writing.parcels import Parcel, SentRows
from orbitmq.spark.writing.row_targets import RowTarget
from orbitmq.spark.writing.send_window import ParcelError, SendWindow

QUEUE = MessageQueue(broker_name="a", queue_id=1, topic="orders")


class Producer:
    """Holds sent parcels until the test answers them."""

    def __init__(self) -> None:
        self.sent: list[tuple[bytes, MessageQueue | None, Future[None]]] = []
        self.stopped = False
        self.arrived = threading.Condition()

    def send(self, parcel: Parcel) -> Future[None]:
        if self.stopped:
            raise StateError("the producer is stopped")
        bodies = b"".join(each.body for each in decode_batch(parcel.messages().body))
        future: Future[None] = Future()
        with self.arrived:
            self.sent.append((bodies, parcel.target.queue, future))
            self.arrived.notify_all()
        return future

    def wait_for(self, count: int) -> None:
        with self.arrived:
            assert self.arrived.wait_for(lambda: len(self.sent) >= count, timeout=60)

    @property
    def bodies(self) -> list[bytes]:
        return [bodies for bodies, _, _ in self.sent]

    def answer(self, bodies: bytes, error: Exception | None = None) -> None:
        future = next(each for sent, _, each in self.sent if sent == bodies and not each.done())
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)


def _parcel(bodies: str, queue: MessageQueue | None = None) -> Parcel:
    messages = [encode_batch([BatchedMessage(0, each.encode(), b"")]) for each in bodies]
    sent = SentRows(
        memoryview(b"".join(messages)),
        np.cumsum([0, *map(len, messages)]),
        np.ones(len(bodies), np.int64),
        None,
        pa.RecordBatch.from_pydict({"body": list(bodies)}),
        0,
    )
    return Parcel(RowTarget("orders", queue), sent, 0, len(bodies), is_batch=True, sequence=0)


def _window(producer: Producer, **arguments: Any) -> SendWindow:
    return SendWindow(producer.send, **{"rows_max": 100, "bytes_max": 100_000, **arguments})


def _refused(code: int = ResponseCode.MESSAGE_ILLEGAL) -> SendRefusedError:
    cause = RemoteError(code, "too large", call="SEND_BATCH_MESSAGE", address="a")
    error = SendRefusedError(
        "orders", [FailedTry("a", "a", cause, 1.0)], elapsed_ms=1, may_be_stored=False, hint=""
    )
    error.__cause__ = cause
    return error


class Adding(threading.Thread):
    """Fills a window in a thread, since that may have to wait."""

    def __init__(self, window: SendWindow, *parcels: Parcel) -> None:
        super().__init__(daemon=True)
        self._window = window
        self._parcels = parcels
        self.added = threading.Event()
        self.error: Exception | None = None
        self.start()

    def run(self) -> None:
        try:
            for parcel in self._parcels:
                self._window.add(parcel)
            self.added.set()
            self._window.flush()
        except Exception as error:  # noqa: BLE001  # for the test
            self.error = error

    def ended(self) -> Exception | None:
        self.join(60)
        assert not self.is_alive()
        return self.error


def test_flush_returns_when_all_is_stored() -> None:
    producer = Producer()
    adding = Adding(_window(producer), _parcel("ab"), _parcel("c"))
    producer.wait_for(2)

    producer.answer(b"c")
    assert adding.is_alive()
    producer.answer(b"ab")

    assert adding.ended() is None


@pytest.mark.parametrize("bounds", [{"rows_max": 3}, {"bytes_max": 70}])
def test_a_full_window_blocks_until_something_is_stored(bounds: dict[str, Any]) -> None:
    producer = Producer()
    adding = Adding(_window(producer, **bounds), _parcel("ab"), _parcel("c"), _parcel("d"))
    producer.wait_for(2)
    assert producer.bodies == [b"ab", b"c"]

    producer.answer(b"ab")
    producer.wait_for(3)
    producer.answer(b"c")
    producer.answer(b"d")

    assert adding.ended() is None


def test_a_parcel_larger_than_the_window_is_sent_alone() -> None:
    producer = Producer()
    adding = Adding(_window(producer, rows_max=1), _parcel("a"), _parcel("bcd"), _parcel("e"))

    for count, bodies in enumerate((b"a", b"bcd", b"e"), start=1):
        producer.wait_for(count)
        assert producer.bodies[-1] == bodies
        producer.answer(bodies)

    assert adding.ended() is None


def test_parcels_of_one_queue_are_sent_one_at_a_time() -> None:
    producer = Producer()
    adding = Adding(
        _window(producer), _parcel("a", QUEUE), _parcel("b", QUEUE), _parcel("c"), _parcel("d")
    )
    producer.wait_for(3)
    assert producer.bodies == [b"a", b"c", b"d"]

    for bodies in (b"c", b"d", b"a"):
        producer.answer(bodies)
    producer.wait_for(4)
    producer.answer(b"b")

    assert adding.ended() is None
    assert [queue for _, queue, _ in producer.sent] == [QUEUE, None, None, QUEUE]


def test_parcels_are_sent_concurrently_if_order_does_not_matter() -> None:
    producer = Producer()
    adding = Adding(_window(producer, in_order=False), _parcel("a", QUEUE), _parcel("b", QUEUE))
    producer.wait_for(2)

    producer.answer(b"b")
    producer.answer(b"a")

    assert adding.ended() is None


def test_the_first_failure_is_raised_with_its_parcel() -> None:
    producer = Producer()
    failed = _parcel("ab")
    adding = Adding(_window(producer, rows_max=3), failed, _parcel("c"), _parcel("d"))
    producer.wait_for(2)

    producer.answer(b"ab", OrbitError("no broker"))

    error = adding.ended()
    assert isinstance(error, ParcelError)
    assert error.parcel is failed
    assert str(error.error) == "no broker"
    assert producer.bodies == [b"ab", b"c"]


def test_an_illegal_parcel_is_split_until_the_faulty_row_is_known() -> None:
    producer = Producer()
    adding = Adding(_window(producer), _parcel("abc"))
    producer.wait_for(1)

    producer.answer(b"abc", _refused())
    producer.wait_for(3)
    producer.answer(b"a")
    producer.answer(b"bc", _refused())
    producer.wait_for(5)
    producer.answer(b"b")
    producer.answer(b"c", _refused())

    error = adding.ended()
    assert isinstance(error, ParcelError)
    assert (error.parcel.start, error.parcel.stop) == (2, 3)


def test_halves_of_one_queue_keep_their_order() -> None:
    producer = Producer()
    adding = Adding(_window(producer), _parcel("ab", QUEUE), _parcel("c", QUEUE))
    producer.wait_for(1)

    producer.answer(b"ab", _refused())
    for count, bodies in enumerate((b"a", b"b", b"c"), start=2):
        producer.wait_for(count)
        producer.answer(bodies)

    assert adding.ended() is None
    assert producer.bodies == [b"ab", b"a", b"b", b"c"]


def test_a_parcel_refused_for_another_reason_is_not_split() -> None:
    producer = Producer()
    adding = Adding(_window(producer), _parcel("abc"))
    producer.wait_for(1)

    producer.answer(b"abc", _refused(ResponseCode.NO_PERMISSION))

    assert isinstance(adding.ended(), ParcelError)
    assert len(producer.sent) == 1


def test_a_producer_that_cannot_send_is_a_failure() -> None:
    producer = Producer()
    producer.stopped = True

    error = Adding(_window(producer), _parcel("a")).ended()

    assert isinstance(error, ParcelError)
    assert isinstance(error.error, StateError)


def _of_large_batch(bodies: str, queue: MessageQueue) -> Parcel:
    """A parcel whose batch takes a megabyte."""
    parcel = _parcel(bodies, queue)
    content = memoryview(bytes(parcel.sent.content) + bytes(1_000_000))
    return replace(parcel, sent=replace(parcel.sent, content=content))


def test_a_queue_without_replies_does_not_hold_whole_batches() -> None:
    producer = Producer()
    window = _window(producer, bytes_max=500_000)
    names = "abcdefghijklmnopqrstuvwxyz"
    adding = Adding(window, *[_of_large_batch(name, QUEUE) for name in names])

    assert adding.added.wait(60)
    assert window.held_bytes < 5_000_000
    for number, name in enumerate(names):
        producer.wait_for(number + 1)
        producer.answer(name.encode())

    assert adding.ended() is None
    assert b"".join(producer.bodies) == names.encode()
    assert window.held_bytes == 0


def test_batches_that_fit_the_window_are_not_copied() -> None:
    producer = Producer()
    parcels = [_of_large_batch(name, QUEUE) for name in "abc"]
    window = _window(producer, bytes_max=1_000_000)

    for parcel in parcels:
        window.add(parcel)

    assert window.held_bytes == sum(parcel.sent.held_bytes for parcel in parcels)
