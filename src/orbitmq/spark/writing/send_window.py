"""Parcels in flight: a bounded number of rows, one parcel at a time per queue.

A parcel to a queue that its rows name, or that their sharding key chooses, is sent once the one
before it is stored, so that a retry cannot change the order. All others are sent concurrently. A
parcel that a broker refuses as illegal (too large, for example) is split in half and sent again: in
the end the faulty row is known, and a broker with lower limits gets requests that it accepts.

A parcel holds the Arrow batch of its rows. If a broker does not answer for a while, a few parcels
of many batches would hold them all: then the remaining rows of old batches are copied.

Threads: one fills the window; replies arrive on the event loop of the clients.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from orbitmq.errors import RemoteError, SendRefusedError
from orbitmq.protocol.codes import ResponseCode
from orbitmq.spark.writing.parcels import Parcel, SentRows, copied

if TYPE_CHECKING:
    from orbitmq.model.queues import MessageQueue

# Perf: batches may take this many times the bytes of the window before parcels are copied. A batch
# takes twice the bytes that are sent, and the window may end in the middle of one: if the window
# holds more than one batch, nothing is ever copied.
_HELD_FACTOR: Final = 4

Send = Callable[["Parcel"], Future[Any]]


class ParcelError(Exception):
    """A parcel that could not be sent; `row_errors.not_sent` makes an error that names a row."""

    def __init__(self, parcel: Parcel, error: BaseException) -> None:
        super().__init__(str(error))
        self.parcel = parcel
        self.error = error


class SendWindow:
    """The parcels of one task that are in flight."""

    def __init__(self, send: Send, *, rows_max: int, bytes_max: int, in_order: bool = True) -> None:
        """Open an empty window.

        Args:
            send: starts to send a parcel.
            rows_max: most rows in flight.
            bytes_max: most bytes in flight.
            in_order: whether parcels of one queue are sent one at a time.
        """
        self._send_parcel = send
        self._in_order = in_order
        self._rows_max = rows_max
        self._bytes_max = bytes_max
        self._changed = threading.Condition()
        self._rows = 0
        self._bytes = 0
        # All that are not stored, by number, so that a copy can replace one.
        self._parcels: dict[int, Parcel] = {}
        self._next_number = 0
        self._newest: SentRows | None = None
        # Upper bound of the memory of batches: none is subtracted until the next count.
        self._held_bytes_max = 0
        # Numbers waiting for a parcel to the same queue; an entry exists while one is in flight.
        self._queues: dict[MessageQueue, deque[int]] = {}
        self._failure: ParcelError | None = None

    @property
    def held_bytes(self) -> int:
        """The approximate memory that parcels hold."""
        with self._changed:
            return self._count_held_bytes()

    def add(self, parcel: Parcel) -> None:
        """Send a parcel once there is room; raises ParcelError if an earlier one failed."""
        with self._changed:
            self._changed.wait_for(lambda: self._failure is not None or self._has_room(parcel))
            self._check()
            if parcel.sent is not self._newest:
                self._start_batch(parcel.sent)
            self._rows += parcel.count
            self._bytes += parcel.size
            number = self._enter(parcel)
            queue = self._queue_of(parcel)
            if queue is not None:
                if queue in self._queues:
                    self._queues[queue].append(number)
                    return
                self._queues[queue] = deque()
        self._send(number)

    def flush(self) -> None:
        """Wait until everything is stored; raises ParcelError if a parcel failed."""
        with self._changed:
            self._changed.wait_for(lambda: self._failure is not None or not self._rows)
            self._check()

    def _has_room(self, parcel: Parcel) -> bool:
        # A parcel larger than the window is sent when nothing else is in flight.
        return not self._rows or (
            self._rows + parcel.count <= self._rows_max
            and self._bytes + parcel.size <= self._bytes_max
        )

    def _enter(self, parcel: Parcel) -> int:
        self._next_number += 1
        self._parcels[self._next_number] = parcel
        return self._next_number

    def _start_batch(self, sent: SentRows) -> None:
        if self._held_bytes_max > _HELD_FACTOR * self._bytes_max:
            self._release_batches()
            self._held_bytes_max = self._count_held_bytes()
        self._held_bytes_max += sent.held_bytes
        self._newest = sent

    def _release_batches(self) -> None:
        """Copy the remaining rows of batches of which few are left."""
        by_batch: dict[SentRows, list[int]] = {}
        for number, parcel in self._parcels.items():
            by_batch.setdefault(parcel.sent, []).append(number)
        for sent, numbers in by_batch.items():
            parcels = [self._parcels[number] for number in numbers]
            if 2 * sum(parcel.size for parcel in parcels) < sent.held_bytes:
                self._parcels.update(zip(numbers, copied(parcels), strict=True))

    def _count_held_bytes(self) -> int:
        return sum(sent.held_bytes for sent in {each.sent for each in self._parcels.values()})

    def _queue_of(self, parcel: Parcel) -> MessageQueue | None:
        """The queue for which a parcel has to wait its turn."""
        return parcel.target.queue if self._in_order else None

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _send(self, number: int) -> None:
        try:
            future = self._send_parcel(self._parcels[number])
        except Exception as error:  # noqa: BLE001  # raised in the thread that fills the window
            self._ended(number, error)
        else:
            future.add_done_callback(partial(self._answered, number))

    def _answered(self, number: int, future: Future[Any]) -> None:
        try:
            self._ended(number, future.exception())
        except CancelledError as cancelled:
            self._ended(number, cancelled)

    def _ended(self, number: int, error: BaseException | None) -> None:
        with self._changed:
            parcel = self._parcels.pop(number)
            if error is not None and _is_divisible(parcel, error) and self._failure is None:
                following = self._halves(parcel)
            else:
                self._rows -= parcel.count
                self._bytes -= parcel.size
                if error is not None and self._failure is None:
                    self._failure = ParcelError(parcel, error)
                following = self._waiting_for(parcel)
            self._changed.notify_all()
        for each in following:
            self._send(each)

    def _halves(self, parcel: Parcel) -> Sequence[int]:
        first, second = map(self._enter, parcel.halves())
        queue = self._queue_of(parcel)
        if queue is None:
            return first, second
        self._queues[queue].appendleft(second)
        return (first,)

    def _waiting_for(self, parcel: Parcel) -> Sequence[int]:
        """The next parcel to the same queue, once one is stored."""
        queue = self._queue_of(parcel)
        if queue is None or self._failure is not None:
            return ()
        waiting = self._queues[queue]
        if waiting:
            return (waiting.popleft(),)
        del self._queues[queue]
        return ()


def _is_divisible(parcel: Parcel, error: BaseException) -> bool:
    """Whether half of a refused parcel may be accepted."""
    answer = error.__cause__ if isinstance(error, SendRefusedError) else error
    return (
        parcel.count > 1
        and isinstance(answer, RemoteError)
        and answer.code == ResponseCode.MESSAGE_ILLEGAL
    )
