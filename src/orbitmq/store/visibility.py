"""Visibility: what is flushed or published is indexed, then it may be seen.

Threads: any; the flush thread under SYNC_FLUSH, whoever publishes under ASYNC_FLUSH.
Crash: nothing of its own; recovery feeds queues and index again.
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
    """Shows records once they may be seen."""

    def __init__(self, dispatcher: Dispatcher, watermark: Watermark, obstacles: Obstacles) -> None:
        self._dispatcher = dispatcher
        self._watermark = watermark
        self._obstacles = obstacles
        self._wanted = watermark.offset
        self._lock = threading.Lock()
        self._callbacks: tuple[OnVisible, ...] = ()
        # Why queues or index cannot follow the log at present; None when they do.
        self.trouble: StoreError | None = None

    @property
    def offset(self) -> PhysicalOffset:
        """Records below may be seen."""
        return self._watermark.offset

    def tell(self, callback: OnVisible) -> None:
        """Have `callback` told which queues grew, once per round."""
        self._callbacks = (*self._callbacks, callback)

    def show(self, end: PhysicalOffset) -> None:
        """Let the records below `end` be seen.

        When queues or index cannot take them (a full disk), they stay hidden and `retry` shows
        them later; the log has them.
        """
        with self._lock:
            self._wanted = max(self._wanted, end)
            if self._wanted <= self._watermark.offset:
                return
            try:
                grown = self._dispatcher.advance(self._wanted)
            except StoreDamagedError:
                raise
            except StoreError as error:
                if self.trouble is None:
                    log.warning("queues and index stand still reason=%s", error)
                self.trouble = error
                self._obstacles.errors[VISIBILITY] = unwritable(error)
                return
            self.trouble = None
            self._obstacles.errors.pop(VISIBILITY, None)
            self._watermark.raise_to(self._wanted)
        self.announce(grown)

    def announce(self, grown: Set[ReadableQueue]) -> None:
        """Tell who listens which queues grew."""
        for callback in self._callbacks:
            try:
                callback(grown)
            except Exception:
                log.exception("a listener for new messages failed")

    def retry(self) -> None:
        """Show what could not be shown before."""
        if self.trouble is not None:
            self.show(self._wanted)
