"""Parcels under way: so many rows at most, those of one queue one by one.

A parcel to a queue that its rows name, or that their sharding key chooses, is sent once the one
before it is stored, so that a retry cannot change the order. All others go at the same time. A
parcel that a broker finds unlawful (too large, for example) is sent in halves: in the end the row
at fault is known, and a broker with lower limits gets what it takes.

Threads: one fills the window; answers come on the event loop of the clients.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from functools import partial
from typing import TYPE_CHECKING, Any

from orbitmq.errors import RemoteError, SendRefusedError
from orbitmq.protocol.codes import ResponseCode

if TYPE_CHECKING:
    from orbitmq.model.queues import MessageQueue
    from orbitmq.spark.parcels import Parcel

Send = Callable[["Parcel"], Future[Any]]


class ParcelError(Exception):
    """A parcel that could not be sent; whoever knows its rows makes an error of it."""

    def __init__(self, parcel: Parcel, error: BaseException) -> None:
        super().__init__(str(error))
        self.parcel = parcel
        self.error = error


class SendWindow:
    """The parcels of one task that are under way."""

    def __init__(self, send: Send, *, rows_max: int, bytes_max: int, in_order: bool = True) -> None:
        """Make it.

        Args:
            send: begins to send a parcel.
            rows_max: rows that are under way, at most.
            bytes_max: bytes that are under way, at most.
            in_order: whether parcels of one queue go one by one.
        """
        self._send_parcel = send
        self._in_order = in_order
        self._rows_max = rows_max
        self._bytes_max = bytes_max
        self._changed = threading.Condition()
        self._rows = 0
        self._bytes = 0
        # What waits behind a parcel to the same queue; there while that one is under way.
        self._queues: dict[MessageQueue, deque[Parcel]] = {}
        self._failure: ParcelError | None = None

    def add(self, parcel: Parcel) -> None:
        """Send a parcel once there is room; raises what became of an earlier one that failed."""
        with self._changed:
            self._changed.wait_for(lambda: self._failure is not None or self._has_room(parcel))
            self._check()
            self._rows += parcel.count
            self._bytes += parcel.size
            queue = self._queue_of(parcel)
            if queue is not None:
                if queue in self._queues:
                    self._queues[queue].append(parcel)
                    return
                self._queues[queue] = deque()
        self._send(parcel)

    def flush(self) -> None:
        """Wait until everything is stored; raises what became of a parcel that failed."""
        with self._changed:
            self._changed.wait_for(lambda: self._failure is not None or not self._rows)
            self._check()

    def _has_room(self, parcel: Parcel) -> bool:
        # A parcel that is larger than the window goes when nothing else is under way.
        return not self._rows or (
            self._rows + parcel.count <= self._rows_max
            and self._bytes + parcel.size <= self._bytes_max
        )

    def _queue_of(self, parcel: Parcel) -> MessageQueue | None:
        """The queue in which a parcel has to wait for its turn."""
        return parcel.place.queue if self._in_order else None

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _send(self, parcel: Parcel) -> None:
        try:
            future = self._send_parcel(parcel)
        except Exception as error:  # noqa: BLE001  # it belongs to whoever fills the window
            self._ended(parcel, error)
        else:
            future.add_done_callback(partial(self._answered, parcel))

    def _answered(self, parcel: Parcel, future: Future[Any]) -> None:
        try:
            self._ended(parcel, future.exception())
        except CancelledError as cancelled:
            self._ended(parcel, cancelled)

    def _ended(self, parcel: Parcel, error: BaseException | None) -> None:
        with self._changed:
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

    def _halves(self, parcel: Parcel) -> Sequence[Parcel]:
        first, second = parcel.halves()
        queue = self._queue_of(parcel)
        if queue is None:
            return first, second
        self._queues[queue].appendleft(second)
        return (first,)

    def _waiting_for(self, parcel: Parcel) -> Sequence[Parcel]:
        """What waited for a parcel that is stored."""
        queue = self._queue_of(parcel)
        if queue is None or self._failure is not None:
            return ()
        waiting = self._queues[queue]
        if waiting:
            return (waiting.popleft(),)
        del self._queues[queue]
        return ()


def _is_divisible(parcel: Parcel, error: BaseException) -> bool:
    """Whether a part of the parcel may be stored though all of it was refused."""
    answer = error.__cause__ if isinstance(error, SendRefusedError) else error
    return (
        parcel.count > 1
        and isinstance(answer, RemoteError)
        and answer.code == ResponseCode.MESSAGE_ILLEGAL
    )
