"""The stream of the log to one slave, as RocketMQ's HA protocol has it.

    slave → master    8 bytes: everything below this offset is copied
    master → slave    8 bytes offset, 4 bytes size, then as many bytes of the log as they are

Integers are big-endian. The first report says where to begin; 0 asks for the whole log. A piece
never crosses files of the log. One of size 0 is a heartbeat.

Threads: one of its own. The system copies bytes from the log's files to the socket, so that none
passes through Python.
"""

from __future__ import annotations

import logging
import struct
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from orbitmq.errors import OrbitError, ProtocolError
from orbitmq.model.queues import PhysicalOffset

if TYPE_CHECKING:
    from orbitmq.broker.replication.config import ReplicationConfig
    from orbitmq.broker.replication.copies import Copies, SlaveCopy
    from orbitmq.clock import Clock
    from orbitmq.store.log.commit_log import LogStretch
    from orbitmq.store.message_store import MessageStore
    from orbitmq.transport.byte_stream import ByteStream

log = logging.getLogger(__name__)

REPORT: Final = struct.Struct(">q")
PIECE: Final = struct.Struct(">qi")
_REPORTS_BYTES: Final = 64 * REPORT.size
# Perf: fewer pieces save an async master a tenth of its processor time per send
# (benchmarks/replication.py); slaves show new messages in steps of 5 ms anyway.
_PIECE_PAUSE_MS: Final = 2.0


class LogStream:
    """Sends the log to one slave, and takes its reports."""

    def __init__(
        self,
        stream: ByteStream,
        *,
        store: MessageStore,
        copies: Copies,
        slave: SlaveCopy,
        config: ReplicationConfig,
        clock: Clock,
        on_end: Callable[[LogStream], None],
    ) -> None:
        self._stream = stream
        self._store = store
        self._copies = copies
        self.slave = slave
        self._config = config
        self._clock = clock
        self._on_end = on_end
        self._stopping = threading.Event()
        self._reports = bytearray(_REPORTS_BYTES)
        self._reports_bytes = 0
        self._heard_ms = self._sent_ms = clock.monotonic_ms()
        # What is left to send of the current piece: its header, then bytes of a file.
        self._header = b""
        self._stretch: LogStretch | None = None
        self._thread = threading.Thread(
            target=self._run, name=f"log stream to {slave.peer}", daemon=True
        )

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def wake(self) -> None:
        """Look for new bytes of the log."""
        self._stream.wake()

    def stop(self) -> None:
        """Close the connection, and wait until the thread has ended."""
        self._stopping.set()
        self._stream.abort()
        self._thread.join()

    # --- the thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        reason = "the broker stops"
        try:
            while not self._stopping.is_set():
                self._wait()
                self._take_reports()
                self._send()
        except OrbitError as error:
            reason = str(error)
        except Exception:
            reason = "a bug"
            log.exception("log stream failed slave=%s", self.slave.peer)
        finally:
            self._stream.close()
            self._copies.leave(self.slave)
            if not self._stopping.is_set():
                log.warning("slave disconnected slave=%s reason=%s", self.slave.peer, reason)
            self._on_end(self)

    def _wait(self) -> None:
        if not self._is_sending and (stretch := self._next_stretch()) is not None:
            self._gather(stretch)
            return
        due_ms = self._heard_ms + self._config.silence_ms_max
        if not self._is_sending and self.slave.position is not None:
            due_ms = min(due_ms, self._sent_ms + self._config.heartbeat_interval_ms)
        self._stream.wait(due_ms - self._clock.monotonic_ms(), to_write=self._is_sending)
        if self._clock.monotonic_ms() - self._heard_ms >= self._config.silence_ms_max:
            raise ProtocolError(f"no report for {self._config.silence_ms_max} ms")

    def _gather(self, stretch: LogStretch) -> None:
        """Let a small piece grow for a moment if no send waits for slaves."""
        if self._config.slaves_awaited or stretch.size >= self._config.batch_bytes // 4:
            return
        pause_ms = self._sent_ms + _PIECE_PAUSE_MS - self._clock.monotonic_ms()
        if pause_ms > 0:
            self._stopping.wait(pause_ms / 1000)

    # --- reports --------------------------------------------------------------------------------

    def _take_reports(self) -> None:
        room = memoryview(self._reports)[self._reports_bytes :]
        count = self._stream.receive_into(room)
        if not count:
            return
        self._heard_ms = self._clock.monotonic_ms()
        self._reports_bytes += count
        whole = self._reports_bytes // REPORT.size * REPORT.size
        if not whole:
            return
        # Compat: as in Java, only the newest report counts.
        (offset,) = REPORT.unpack_from(self._reports, whole - REPORT.size)
        self._reports[: self._reports_bytes - whole] = self._reports[whole : self._reports_bytes]
        self._reports_bytes -= whole
        self._take_report(PhysicalOffset(offset))

    def _take_report(self, offset: PhysicalOffset) -> None:
        slave = self.slave
        if slave.position is None:
            slave.position = self._first_position(offset)
            log.info(
                "slave connected slave=%s has=%d begins_at=%d", slave.peer, offset, slave.position
            )
        elif not 0 <= offset <= slave.position:
            raise ProtocolError(f"it reports {offset}, and was sent {slave.position}")
        self._copies.report(slave, offset)

    def _first_position(self, offset: PhysicalOffset) -> PhysicalOffset:
        start, end = self._store.log_start, self._store.log_end
        if not offset:
            return start
        if offset > end:
            raise ProtocolError(
                f"it has {offset} bytes of a log that ends at {end} here",
                hint="it may hold messages that this master has lost",
            )
        if offset < start:
            raise ProtocolError(
                f"it has the log up to {offset}, and here it begins at {start}",
                hint="empty the slave's store, and it copies the whole log",
            )
        return offset

    # --- sending --------------------------------------------------------------------------------

    @property
    def _is_sending(self) -> bool:
        return bool(self._header) or self._stretch is not None

    def _next_stretch(self) -> LogStretch | None:
        position = self.slave.position
        if position is None:
            return None
        return self._store.stretch_at(position, self._config.batch_bytes)

    def _send(self) -> None:
        if not self._is_sending and not self._begin_piece():
            return
        if self._header:
            sent = self._stream.send(self._header, more=self._stretch is not None)
            self._header = self._header[sent:]
            if self._header:
                return
            self._sent_ms = self._clock.monotonic_ms()
        stretch = self._stretch
        if stretch is None:
            return
        sent = self._stream.send_file(stretch.descriptor.number, stretch.at, stretch.size)
        if sent:
            self._sent_ms = self._clock.monotonic_ms()
            self.slave.sent_bytes += sent
            self._stretch = stretch.after(sent)

    def _begin_piece(self) -> bool:
        position = self.slave.position
        if position is None:
            return False
        stretch = self._next_stretch()
        if stretch is not None:
            self._header = PIECE.pack(position, stretch.size)
            self._stretch = stretch
            self.slave.position = PhysicalOffset(position + stretch.size)
            return True
        if position < self._store.log_start:
            raise ProtocolError(
                f"it was sent the log up to {position}, and here it begins at "
                f"{self._store.log_start} now",
                hint="empty the slave's store, and it copies the whole log",
            )
        idle_ms = self._clock.monotonic_ms() - self._sent_ms
        if idle_ms >= self._config.heartbeat_interval_ms:
            self._header = PIECE.pack(position, 0)
            return True
        return False
