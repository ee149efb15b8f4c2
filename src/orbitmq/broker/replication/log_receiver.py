"""The slave's side of replication: copies the master's log.

What the two send: see `log_stream`. The bytes go from the socket into the mapped file of the log.
A slave with SYNC_FLUSH reports what is on its disk, another one what it has. It reports whole
records only, and begins with the next record after a connection was lost.

Threads: one of its own.
Crash: the next start begins after the last whole record.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from orbitmq.broker.replication.log_stream import PIECE, REPORT
from orbitmq.errors import CopyError, OrbitError, ProtocolError
from orbitmq.model.queues import PhysicalOffset
from orbitmq.transport.byte_stream import ByteStream, connect

if TYPE_CHECKING:
    from orbitmq.broker.replication.config import ReplicationConfig
    from orbitmq.clock import Clock
    from orbitmq.store.message_store import MessageStore

log = logging.getLogger(__name__)

_CONNECT_TIMEOUT_MS: Final = 3000
_RETRY_MS: Final = 500
_PAUSE_MS_MAX: Final = 10_000
_PIECE_BYTES_MAX: Final = 64 * 1024 * 1024
# Bytes received before they are looked at and shown.
_CHUNK_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """The connection to a master."""

    # Where the master listens, and the slave's own end.
    address: str
    local: str


class LogReceiver:
    """Copies the log of a master, and connects again whenever the connection is lost."""

    def __init__(
        self,
        *,
        store: MessageStore,
        address: Callable[[], str],
        prepare: Callable[[str], None],
        config: ReplicationConfig,
        clock: Clock,
    ) -> None:
        """Prepare to copy.

        `address` says where the master is now, empty if nobody knows. `prepare` is called with it
        before each connection, in the receiver's thread, and raises if this copy must not follow
        that master.
        """
        self._store = store
        self._copy = store.copy
        self._address = address
        self._prepare = prepare
        self._config = config
        self._clock = clock
        self._stopping = threading.Event()
        self._stream: ByteStream | None = None
        self._link: Link | None = None
        self._failure = ""
        self._pause_ms = _RETRY_MS
        self._heard_ms = self._sent_ms = self._reported = 0.0
        self.received_bytes = 0
        self._header = bytearray(PIECE.size)
        self._header_bytes = 0
        self._piece_left = 0
        # Whether the bytes received last complete a record.
        self._piece_grew = False
        self._thread = threading.Thread(target=self._run, name="log copy", daemon=True)

    @property
    def link(self) -> Link | None:
        """The connection to the master; None if there is none."""
        return self._link

    @property
    def failure(self) -> str:
        """Why there is no connection; empty if there is one."""
        return self._failure

    def start(self) -> None:
        """Start the thread."""
        self._store.on_growth(self._wake)
        self._thread.start()

    def stop(self) -> None:
        """Disconnect, and wait until the thread has ended."""
        self._stopping.set()
        stream = self._stream
        if stream is not None:
            stream.abort()
        self._thread.join()

    def reconnect(self) -> None:
        """Drop the connection: the master may be another one now."""
        stream = self._stream
        if stream is not None:
            stream.abort()

    def _wake(self) -> None:
        stream = self._stream
        if stream is not None:
            stream.wake()

    # --- the thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopping.is_set():
            address = self._address()
            try:
                if address:
                    self._follow(address)
            except CopyError as error:
                # Only an operator, or another master, can change that.
                self._pause_ms = min(2 * self._pause_ms, _PAUSE_MS_MAX)
                self._note_failure(address, str(error))
            except OrbitError as error:
                self._pause_ms = _RETRY_MS
                # Without the hint: where the master should be is known, and that it may be down.
                self._note_failure(address, str(error.args[0]))
            except Exception as error:
                log.exception("log copy failed master=%s", address)
                self._failure = str(error)
            self._stopping.wait(self._pause_ms / 1000)

    def _note_failure(self, address: str, failure: str) -> None:
        # Logged once, not at every attempt.
        if failure != self._failure and not self._stopping.is_set():
            log.warning("log is not copied master=%s reason=%s", address, failure)
        self._failure = failure

    def _follow(self, address: str) -> None:
        self._prepare(address)
        stream = connect(address, _CONNECT_TIMEOUT_MS)
        self._stream = stream
        try:
            # `stop` and `reconnect` end the stream if there is one already.
            if self._stopping.is_set() or self._address() != address:
                return
            self._heard_ms = self._clock.monotonic_ms()
            self._header_bytes = self._piece_left = 0
            self._report(stream, PhysicalOffset(self._store.log_end))
            self._link = Link(address=address, local=stream.local)
            log.info("log is copied master=%s from=%d", address, self._store.log_end)
            self._failure = ""
            self._pause_ms = _RETRY_MS
            while not self._stopping.is_set():
                self._step(stream)
        finally:
            self._stream = self._link = None
            stream.close()
            self._copy.drop_part()

    def _step(self, stream: ByteStream) -> None:
        config = self._config
        due_ms = min(
            self._heard_ms + config.silence_ms_max, self._sent_ms + config.heartbeat_interval_ms
        )
        stream.wait(due_ms - self._clock.monotonic_ms())
        self._receive(stream)
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._heard_ms >= config.silence_ms_max:
            raise ProtocolError(f"the master was silent for {config.silence_ms_max} ms")
        settled = self._store.settled
        if settled > self._reported or now_ms - self._sent_ms >= config.heartbeat_interval_ms:
            self._report(stream, settled)

    def _report(self, stream: ByteStream, offset: PhysicalOffset) -> None:
        if stream.send(REPORT.pack(offset)) != REPORT.size:
            raise ProtocolError("the master does not read the reports")
        self._reported = offset
        self._sent_ms = self._clock.monotonic_ms()

    # --- receiving ------------------------------------------------------------------------------

    def _receive(self, stream: ByteStream) -> None:
        """Receive what has arrived, up to a limit, and show it."""
        has_grown = False
        budget = _CHUNK_BYTES
        try:
            while budget > 0 and (count := self._receive_part(stream, budget)):
                has_grown |= self._piece_grew
                budget -= count
        finally:
            if budget < _CHUNK_BYTES:
                self._heard_ms = self._clock.monotonic_ms()
            if has_grown:
                self._store.settle()

    def _receive_part(self, stream: ByteStream, size_max: int) -> int:
        """Receive more of a piece or of its header; returns how many bytes, 0 if none is there."""
        self._piece_grew = False
        if not self._piece_left:
            count = stream.receive_into(memoryview(self._header)[self._header_bytes :])
            self._header_bytes += count
            if self._header_bytes == PIECE.size:
                self._begin_piece()
            return count
        count = stream.receive_into(self._copy.room()[: min(self._piece_left, size_max)])
        if count:
            self._piece_left -= count
            self.received_bytes += count
            self._piece_grew = self._copy.take(count)
        return count

    def _begin_piece(self) -> None:
        self._header_bytes = 0
        offset, size = PIECE.unpack(self._header)
        if not 0 <= size <= _PIECE_BYTES_MAX:
            raise ProtocolError(f"the master sent a piece of {size} bytes")
        copy = self._copy
        if size and copy.is_empty:
            copy.begin(offset)
        if offset != copy.received and (size or not copy.is_empty):
            raise CopyError(f"the master sent bytes from {offset} on, not from {copy.received}")
        self._piece_left = size
