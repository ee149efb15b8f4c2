"""Threads that run callbacks of blocking clients, so that none runs on the loop."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, TypeVar

log = logging.getLogger(__name__)

T = TypeVar("T")

_THREADS: Final = 4


class Callbacks:
    """Runs callbacks, a few at a time; its threads start with the first of them."""

    def __init__(self, name: str, *, threads: int = _THREADS) -> None:
        self._name = name
        self._threads = threads
        self._guard = threading.Lock()
        self._executor: ThreadPoolExecutor | None = None
        self._stopped = False
        self._here = threading.local()

    def run(self, callback: Callable[[], object]) -> Future[None]:
        """Call it in a thread; the future is done afterwards, whatever came of it."""
        with self._guard:
            if not self._stopped:
                if self._executor is None:
                    self._executor = ThreadPoolExecutor(
                        self._threads, thread_name_prefix=self._name
                    )
                return self._submit(self._executor, callback)
        log.warning("callback came after the stop and was dropped client=%s", self._name)
        dropped: Future[None] = Future()
        dropped.set_result(None)
        return dropped

    def after(
        self,
        future: Future[T],
        on_success: Callable[[T], object] | None,
        on_failure: Callable[[BaseException], object] | None,
    ) -> None:
        """Call one of them once the future is done; none when it is cancelled."""

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
    def is_here(self) -> bool:
        """Whether this thread is one of them."""
        return getattr(self._here, "is_callback", False)

    def stop(self) -> None:
        """Run what waits, and end the threads; a callback that calls this is not waited for."""
        with self._guard:
            self._stopped = True
            executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown(wait=not self.is_here)

    def _submit(self, executor: ThreadPoolExecutor, callback: Callable[[], object]) -> Future[None]:
        try:
            return executor.submit(self._run, callback)
        except RuntimeError:
            # The main thread has ended, and with it all executors; other threads go on.
            done: Future[None] = Future()

            def run() -> None:
                self._run(callback)
                done.set_result(None)

            threading.Thread(target=run, name=self._name).start()
            return done

    def _run(self, callback: Callable[[], object]) -> None:
        self._here.is_callback = True
        try:
            callback()
        except Exception:
            log.exception("callback failed client=%s", self._name)
