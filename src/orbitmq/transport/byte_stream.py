"""Connections of raw bytes, each used by a thread.

Each has a thread that waits for its socket; another thread can wake it. So neither a slow peer nor
a read from a cold disk delays the event loop.

Threads: one uses a stream; `wake` and `abort` from any.
"""

from __future__ import annotations

import logging
import os
import select
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from orbitmq.errors import ConnectError, ConnectionLostError
from orbitmq.transport.addresses import format_address, parse_address
from orbitmq.transport.listening import listen_on

log = logging.getLogger(__name__)

_MORE: Final = getattr(socket, "MSG_MORE", 0)
_BACKLOG: Final = 16
_WAKE_BYTES: Final = 4096
_ACCEPT_RETRY_MS: Final = 1000


class Waker:
    """Ends the wait of a thread in `poll`."""

    def __init__(self) -> None:
        self._near, self._far = socket.socketpair()
        self._near.settimeout(0)
        self._far.settimeout(0)
        self._is_due = False

    def fileno(self) -> int:
        """What to wait for."""
        return self._near.fileno()

    def wake(self) -> None:
        """End the current wait, or the next one; from any thread."""
        # Perf: a thread that is awake anyway costs no system call.
        if not self._is_due:
            self._is_due = True
            with suppress(OSError):
                self._far.send(b"\0")

    def clear(self) -> None:
        """Note that the thread is awake; later calls of `wake` count again."""
        # Invariant: in this order. Whoever finds the mark still set has changed things before this
        # returns, and the thread looks at them afterwards.
        with suppress(OSError):
            self._near.recv(_WAKE_BYTES)
        self._is_due = False

    def close(self) -> None:
        """Close it; `wake` has no effect any more."""
        self._near.close()
        self._far.close()


class ByteStream:
    """One connection."""

    def __init__(self, connected: socket.socket, peer: str) -> None:
        connected.settimeout(0)
        with suppress(OSError):
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = connected
        self.peer = peer
        self.local = format_address(connected.getsockname())
        self._waker = Waker()
        self._poll = select.poll()
        self._poll.register(self._waker.fileno(), select.POLLIN)
        self._watched = select.POLLIN
        self._poll.register(connected.fileno(), select.POLLIN)

    def wait(self, timeout_ms: float, *, to_write: bool = False) -> bool:
        """Wait until there are bytes, there is room if `to_write`, or `wake` was called.

        Returns whether one of these came before the timeout.
        """
        watched = select.POLLIN | (select.POLLOUT if to_write else 0)
        if watched != self._watched:
            self._watched = watched
            self._poll.modify(self._socket.fileno(), watched)
        ready = self._poll.poll(max(timeout_ms, 0))
        self._waker.clear()
        return bool(ready)

    def wake(self) -> None:
        """End the wait of the stream's thread."""
        self._waker.wake()

    def receive_into(self, room: memoryview) -> int:
        """Receive what is there; 0 if that is nothing; raises ConnectionLostError at the end."""
        try:
            count = self._socket.recv_into(room)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            raise self._lost(error) from error
        if not count:
            raise ConnectionLostError(self.peer, "the peer closed the connection")
        return count

    def send(self, content: bytes | memoryview, *, more: bool = False) -> int:
        """Send as much as there is room for; `more` says that further bytes follow at once."""
        try:
            return self._socket.send(content, _MORE if more else 0)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            raise self._lost(error) from error

    def send_file(self, descriptor: int, at: int, count: int) -> int:
        """Send bytes of a file, which the system copies by itself, as far as there is room."""
        try:
            return os.sendfile(self._socket.fileno(), descriptor, at, count)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            raise self._lost(error) from error

    def abort(self) -> None:
        """Cut the connection, from any thread; the stream's thread notices and closes it."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self.wake()

    def close(self) -> None:
        """Close the connection; for the thread that uses it."""
        self._waker.close()
        self._socket.close()

    def _lost(self, error: OSError) -> ConnectionLostError:
        return ConnectionLostError(self.peer, error.strerror or type(error).__name__)


def connect(address: str, timeout_ms: float) -> ByteStream:
    """Connect to an address; for a thread that may wait."""
    host, port = parse_address(address)
    try:
        connected = socket.create_connection((host, port), timeout_ms / 1000)
    except OSError as error:
        raise ConnectError(address, error.strerror or str(error)) from error
    return ByteStream(connected, address)


class ByteListener:
    """Accepts connections on a port, in a thread of its own."""

    def __init__(
        self,
        bind_address: str,
        port: int,
        on_connection: Callable[[ByteStream], None],
        *,
        name: str,
    ) -> None:
        self._on_connection = on_connection
        self._listening = listen_on(bind_address, port, backlog=_BACKLOG)
        self._waker = Waker()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port listened on."""
        return int(self._listening.getsockname()[1])

    def stop(self) -> None:
        """Stop accepting; connections stay."""
        self._stopping.set()
        self._waker.wake()
        self._thread.join()
        self._listening.close()
        self._waker.close()

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._listening.fileno(), select.POLLIN)
        poll.register(self._waker.fileno(), select.POLLIN)
        while True:
            poll.poll()
            self._waker.clear()
            if self._stopping.is_set():
                return
            try:
                accepted, peer = self._listening.accept()
                self._on_connection(ByteStream(accepted, format_address(peer)))
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                # The peer has gone again.
                continue
            except Exception:
                # Without descriptors or threads, trying at once would only burn time.
                log.exception("connection not accepted")
                self._stopping.wait(_ACCEPT_RETRY_MS / 1000)
