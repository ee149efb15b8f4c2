"""An event loop in a thread of its own, for those who call from other threads.

Threads: `run` is called from any thread but this one.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from orbitmq.errors import StateError
from orbitmq.transport import event_loop

T = TypeVar("T")


class LoopThread:
    """Runs coroutines for blocking callers, until it is stopped."""

    def __init__(self, name: str) -> None:
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end: asyncio.Event | None = None

    def start(self) -> None:
        """Begin; returns once coroutines can be run."""
        self._thread.start()
        self._ready.wait()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end, and return what it returns."""
        if self._loop is None or not self._thread.is_alive():
            work.close()
            raise StateError(f"{self._thread.name} does not run", hint="start it first")
        if threading.current_thread() is self._thread:
            work.close()
            raise StateError("a loop cannot wait for itself", hint="call from another thread")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def stop(self) -> None:
        """End the loop and the thread."""
        if self._loop is not None and self._end is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._end.set)
            self._thread.join()

    def _main(self) -> None:
        event_loop.run(self._until_stopped(), use_native_loop=True)

    async def _until_stopped(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._end = asyncio.Event()
        self._ready.set()
        await self._end.wait()
