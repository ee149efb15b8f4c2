"""The master's side of replication: streams the log to slaves.

Threads: one that accepts, and one per slave; everything here from the event loop's thread or those.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Final

from orbitmq.broker.replication.copies import SlaveCopy
from orbitmq.broker.replication.log_stream import LogStream
from orbitmq.transport.byte_stream import ByteListener

if TYPE_CHECKING:
    from orbitmq.broker.replication.config import ReplicationConfig
    from orbitmq.broker.replication.copies import Copies
    from orbitmq.clock import Clock
    from orbitmq.store.message_store import MessageStore
    from orbitmq.transport.byte_stream import ByteStream

log = logging.getLogger(__name__)

STREAMS_MAX: Final = 64


class LogSender:
    """Streams the log to all slaves that connect."""

    def __init__(
        self,
        *,
        store: MessageStore,
        copies: Copies,
        config: ReplicationConfig,
        bind_address: str,
        port: int,
        clock: Clock,
    ) -> None:
        self._store = store
        self._copies = copies
        self._config = config
        self._bind_address = bind_address
        self._port = port
        self._clock = clock
        self._listener: ByteListener | None = None
        self._lock = threading.Lock()
        # Replaced as a whole, so that a wake-up needs no lock.
        self._streams: tuple[LogStream, ...] = ()
        self._stopping = False

    def start(self) -> None:
        """Listen; raises SettingsError if the port is taken."""
        self._listener = ByteListener(
            self._bind_address, self._port, self._connected, name="replication"
        )
        self._store.on_growth(self._wake)

    def stop(self) -> None:
        """Disconnect all slaves; for a thread that may wait."""
        self._stopping = True
        if self._listener is not None:
            self._listener.stop()
        for stream in self._streams:
            stream.stop()

    def _wake(self) -> None:
        for stream in self._streams:
            stream.wake()

    def _connected(self, stream: ByteStream) -> None:
        with self._lock:
            if self._stopping or len(self._streams) >= STREAMS_MAX:
                log.warning("slave refused slave=%s slaves=%d", stream.peer, len(self._streams))
                stream.close()
                return
            made = LogStream(
                stream,
                store=self._store,
                copies=self._copies,
                slave=SlaveCopy(peer=stream.peer, connected_ms=self._clock.monotonic_ms()),
                config=self._config,
                clock=self._clock,
                on_end=self._ended,
            )
            self._streams = (*self._streams, made)
        made.start()

    def _ended(self, stream: LogStream) -> None:
        with self._lock:
            self._streams = tuple(other for other in self._streams if other is not stream)
