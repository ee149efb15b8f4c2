"""Visibility: indexes records that are flushed or published, then shows them.

Threads: any; the flush thread under SYNC_FLUSH, the publishing thread under ASYNC_FLUSH.
Crash: it has no state on disk; recovery completes queues and index.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Set
from typing import TYPE_CHECKING

from orbitmq.errors import StoreDamagedError, StoreError
from orbitmq.model.queues import PhysicalOffset
from orbitmq.store.log.obstacles import VISIBILITY, Obstacles, unwritable

if TYPE_CHECKING:
    from orbitmq.store.index.dispatcher import Dispatcher
    from orbitmq.store.index.watermark import Watermark
    from orbitmq.store.reading.queue_reader import ReadableQueue

log = logging.getLogger(__name__)

OnVisible = Callable[[Set["ReadableQueue"]], None]


class Visibility:
    """Makes records visible to readers."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        watermark: Watermark,
        obstacles: Obstacles,
        *,
        limit: PhysicalOffset | None = None,
    ) -> None:
        self._dispatcher = dispatcher
        self._watermark = watermark
        self._obstacles = obstacles
        # With a limit, everything that recovery found is wanted.
        self._wanted = watermark.offset if limit is None else dispatcher.log.end
        # Nothing above is shown; None if there is no such limit.
        self._limit = limit
        self._lock = threading.Lock()
        self._callbacks: tuple[OnVisible, ...] = ()
        # Why queues or index cannot follow the log now; None if they do.
        self.trouble: StoreError | None = None

    @property
    def offset(self) -> PhysicalOffset:
        """Records below are visible."""
        return self._watermark.offset

    def add_listener(self, callback: OnVisible) -> None:
        """Call `callback` with the queues that grew, once per round."""
        self._callbacks = (*self._callbacks, callback)

    def show(self, end: PhysicalOffset) -> None:
        """Make the records below `end` visible.

        If queues or index cannot take them (a full disk), they stay hidden in the log until
        `retry` shows them.
        """
        with self._lock:
            self._wanted = max(self._wanted, end)
            shown = self._wanted if self._limit is None else min(self._wanted, self._limit)
            if shown <= self._watermark.offset and self.trouble is None:
                return
            try:
                grown = self._dispatcher.advance(shown)
            except StoreDamagedError:
                raise
            except StoreError as error:
                if self.trouble is None:
                    log.warning("queues and index cannot follow the log reason=%s", error)
                self.trouble = error
                self._obstacles.errors[VISIBILITY] = unwritable(error)
                return
            self.trouble = None
            self._obstacles.errors.pop(VISIBILITY, None)
            self._watermark.raise_to(shown)
        self.notify(grown)

    def limit(self, limit: PhysicalOffset | None) -> None:
        """Show nothing above `limit`, and what is wanted up to there; None shows all of it.

        A limit below what is visible already hides nothing.
        """
        self._limit = limit
        self.show(self._wanted)

    def postpone(self, end: PhysicalOffset, trouble: StoreError) -> None:
        """Start with records hidden, which `retry` shows once queues and index can take them."""
        self._wanted = max(self._wanted, end)
        self.trouble = trouble
        self._obstacles.errors[VISIBILITY] = unwritable(trouble)

    def notify(self, grown: Set[ReadableQueue]) -> None:
        """Notify the listeners which queues grew."""
        for callback in self._callbacks:
            try:
                callback(grown)
            except Exception:
                log.exception("a listener for new messages failed")

    def retry(self) -> None:
        """Show records that could not be shown before."""
        if self.trouble is not None:
            self.show(self._wanted)
