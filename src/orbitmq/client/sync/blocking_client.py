"""What all blocking clients have in common: life, and calls to their asyncio form.

Threads: any number may use one client.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Generic, Protocol, Self, TypeVar

from orbitmq.client.sync import background_loop
from orbitmq.client.sync.background_loop import BackgroundLoop, made_before_fork
from orbitmq.errors import StateError

T = TypeVar("T")


class AsyncClient(Protocol):
    """A client on asyncio, as far as every one of them is the same."""

    async def start(self) -> None:
        """Begin."""

    async def stop(self) -> None:
        """End."""


C = TypeVar("C", bound=AsyncClient)


class BlockingClient(Generic[C]):
    """A client whose calls wait for their end; best used in a `with` block."""

    def __init__(self, client: C, *, what: str) -> None:
        self._client = client
        self._what = what
        self._process_id = os.getpid()
        self._guard = threading.Lock()
        self._loop: BackgroundLoop | None = None
        self._stopped = False
        # Nothing runs: neither yet nor any more.
        self._ended = threading.Event()
        self._ended.set()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Begin, and return once the client can be used."""
        if os.getpid() != self._process_id:
            raise made_before_fork()
        loop = background_loop.acquire()
        try:
            loop.call(self._client.start())
        except BaseException:
            background_loop.release(loop)
            raise
        loop.stop_at_exit(self._client.stop)
        self._ended.clear()
        self._loop = loop

    def stop(self) -> None:
        """End, and return once nothing of the client runs any more; stopped twice is stopped."""
        if self._loop is not None and not self._loop.left_behind:
            self._loop.check_may_wait()
        with self._guard:
            loop, self._loop = self._loop, None
            self._stopped = True
        if loop is None:
            # Another thread may be at it; whom that waits for cannot wait for it.
            if not self._is_own_thread():
                self._ended.wait()
            return
        try:
            if not loop.left_behind:
                self._stop(loop)
        finally:
            self._ended.set()

    def _stop(self, loop: BackgroundLoop) -> None:
        """Stop the client, and all that this face of it runs."""
        try:
            loop.call(self._client.stop())
        finally:
            loop.is_stopped(self._client.stop)
            background_loop.release(loop)

    def _is_own_thread(self) -> bool:
        """Whether this thread runs a callback or listener of the client."""
        return False

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        """Do work on the loop and wait for its end."""
        loop = self._loop
        if loop is None:
            work.close()
            raise self._not_running()
        return loop.call(work)

    def _do(self, action: Callable[[], T]) -> T:
        """Do something on the loop that does not wait; before the start, do it here."""
        loop = self._loop
        if loop is None:
            return action()
        return loop.call(_awaited(action))

    def _running(self) -> BackgroundLoop:
        loop = self._loop
        if loop is None:
            raise self._not_running()
        return loop

    def _not_running(self) -> StateError:
        if self._stopped:
            return StateError(f"the {self._what} is stopped", hint="make a new one")
        return StateError(
            f"the {self._what} is not started", hint="call start(), or use it in a with block"
        )


async def _awaited(action: Callable[[], T]) -> T:
    return action()
