"""Threads that run callbacks of blocking clients, so that none runs on the loop.

One exception: while the interpreter shuts down, no thread can start. A client whose first callback
comes then calls it on the loop.

Threads: any may call.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, TypeVar

from orbitmq.client.aio.daemon_threads import DaemonThreads

log = logging.getLogger(__name__)

T = TypeVar("T")

_THREADS: Final = 4


class Callbacks:
    """Runs callbacks, a few at a time; its threads start with the first one."""

    def __init__(self, name: str, *, threads: int = _THREADS) -> None:
        self._name = name
        self._threads_max = threads
        self._guard = threading.Lock()
        self._threads = DaemonThreads(name)
        # Callbacks that are waiting or running.
        self._pending = 0
        self._stopped = False
        self._here = threading.local()

    def run(self, callback: Callable[[], object]) -> Future[None]:
        """Call it in a thread; the future is done afterwards, even if the callback fails."""
        done: Future[None] = Future()

        def call() -> None:
            is_wanted = done.set_running_or_notify_cancel()
            if is_wanted:
                self._run(callback)
            with self._guard:
                self._pending -= 1
            if is_wanted:
                done.set_result(None)

        with self._guard:
            if self._stopped:
                log.warning("callback after the stop dropped client=%s", self._name)
                done.set_result(None)
                return done
            self._pending += 1
            is_taken = self._threads.submit(
                call, threads_needed=min(self._pending, self._threads_max)
            )
        if not is_taken:
            call()
        return done

    def after(
        self,
        future: Future[T],
        on_success: Callable[[T], object] | None,
        on_failure: Callable[[BaseException], object] | None,
    ) -> None:
        """Call one of the two once the future is done; neither if it is cancelled."""

        def call() -> None:
            error = future.exception()
            if error is None:
                if on_success is not None:
                    on_success(future.result())
            elif on_failure is not None:
                on_failure(error)
            else:
                log.warning("send failed, and there is no on_failure reason=%s", error)

        def run(_: object) -> None:
            if not future.cancelled():
                self.run(call)

        if on_success is not None or on_failure is not None:
            future.add_done_callback(run)

    @property
    def in_callback(self) -> bool:
        """Whether this thread runs one of the callbacks."""
        return getattr(self._here, "is_callback", False)

    def stop(self, *, wait_seconds: float | None = None) -> None:
        """Run the pending callbacks and end the threads; a callback that calls it may continue."""
        with self._guard:
            if not self._stopped:
                self._stopped = True
                self._threads.end()
        if not self.in_callback and not self._threads.join(wait_seconds):
            log.warning("callback did not return in time client=%s", self._name)

    def _run(self, callback: Callable[[], object]) -> None:
        self._here.is_callback = True
        try:
            callback()
        except BaseException:  # sys.exit() in a callback ends neither its thread nor the process
            log.exception("callback failed client=%s", self._name)
        finally:
            self._here.is_callback = False
