"""Delay delivery: moves delayed messages to their real queues once they are due.

A level is one queue whose entries carry the due time of their message. Due times of a level grow
with its offsets, so that only the first message of each level has to be looked at.

Threads: the event loop's; records are read off it.
Crash: progress is saved behind a flush of what was delivered, so that it never leads.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from orbitmq.disk import off_loop
from orbitmq.errors import OrbitError
from orbitmq.lifecycle import Periodic
from orbitmq.model import property_names
from orbitmq.model.names import HALF_TOPIC, SCHEDULE_TOPIC
from orbitmq.model.queues import QueueOffset
from orbitmq.record.properties import encode_properties
from orbitmq.store.draft import Draft

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.broker.delay.progress import DelayProgress
    from orbitmq.clock import Clock
    from orbitmq.record.decode import StoredMessage
    from orbitmq.store.message_store import MessageStore

log = logging.getLogger(__name__)

_LOOK_INTERVAL_MS: Final = 100
# Messages of one level moved before the others, and the clients, get their turn.
_BATCH: Final = 128
# Compat: what asked for the delay is taken out, or a message passed on would be delayed again.
_DELAYS: Final = frozenset(
    {
        property_names.DELAY_LEVEL,
        property_names.TIMER_DELIVER_MS,
        property_names.TIMER_DELAY_SECONDS,
        property_names.TIMER_DELAY_MS,
    }
)


class DelayDelivery:
    """Empties the delay queues."""

    def __init__(
        self,
        *,
        store: MessageStore,
        progress: DelayProgress,
        levels_ms: tuple[int, ...],
        on_delivered: Callable[[Draft], None],
        save_interval_ms: int,
        clock: Clock,
    ) -> None:
        self._store = store
        self._progress = progress
        self._levels_ms = levels_ms
        self._on_delivered = on_delivered
        self._clock = clock
        self._offsets: dict[int, QueueOffset] = {}
        self._looking = Periodic("delay delivery", _LOOK_INTERVAL_MS, self.deliver_due, clock)
        self._saving = Periodic("delay progress", save_interval_ms, self.save, clock)

    def start(self) -> None:
        """Go on where the progress says."""
        for level in range(1, len(self._levels_ms) + 1):
            self._offsets[level] = self._within(level, self._progress.offset(level))
        self._looking.start()
        self._saving.start()

    async def stop(self) -> None:
        """End, and keep where to go on."""
        await self._looking.stop()
        await self._saving.stop()
        try:
            await self.save()
        except OrbitError as error:
            log.warning("delay progress not saved; some messages come again reason=%s", error)

    @property
    def offsets(self) -> Mapping[int, QueueOffset]:
        """Where each level goes on."""
        return self._offsets

    async def save(self) -> None:
        """Keep where the levels go on, once what was delivered is on disk."""
        offsets = dict(self._offsets)
        if any(self._progress.offset(level) != offset for level, offset in offsets.items()):
            await off_loop(self._store.flush)
            await self._progress.save(offsets)

    async def deliver_due(self) -> None:
        """Move every message that is due."""
        for level in self._offsets:
            while await self._deliver_some(level):
                pass

    async def _deliver_some(self, level: int) -> bool:
        """Move messages of one level; tells whether there may be more that are due."""
        offset = self._offsets[level]
        if offset >= self._store.end_of(SCHEDULE_TOPIC, level - 1):
            return False
        due, is_full = await off_loop(self._read_due, level, offset)
        try:
            for number, message in due:
                if message is not None and not self._deliver(message):
                    return False
                self._offsets[level] = QueueOffset(number + 1)
        finally:
            self._store.publish()
            self._store.request_flush()
        return is_full

    def _read_due(
        self, level: int, offset: QueueOffset
    ) -> tuple[list[tuple[QueueOffset, StoredMessage | None]], bool]:
        """Read messages that are due; None stands for one that is gone."""
        now_ms = self._clock.now_ms()
        offset = self._within(level, offset)
        due: list[tuple[QueueOffset, StoredMessage | None]] = []
        for physical_offset, _, due_ms in self._store.entries(
            SCHEDULE_TOPIC, level - 1, offset, _BATCH
        ):
            # Compat: a due time beyond the level's delay comes from another clock or another
            # list of levels; such a message is due now.
            if now_ms < due_ms <= now_ms + self._levels_ms[level - 1]:
                return due, False
            due.append((offset, self._store.message_at(physical_offset)))
            offset = QueueOffset(offset + 1)
        return due, len(due) == _BATCH

    def _deliver(self, message: StoredMessage) -> bool:
        """Store a message in its real queue; False when that has to be tried again."""
        properties = message.properties
        topic = properties.get(property_names.REAL_TOPIC, "")
        queue_id = properties.get(property_names.REAL_QUEUE_ID, "")
        if not topic or not queue_id.isdecimal() or topic == HALF_TOPIC:
            log.warning(
                "delayed message dropped offset=%d reason=it does not say where to go, "
                "or to a topic of the broker",
                message.physical_offset,
            )
            return True
        draft = Draft(
            topic=topic,
            queue_id=int(queue_id),
            body=message.stored_body,
            properties=encode_properties(
                {name: value for name, value in properties.items() if name not in _DELAYS}
            ),
            flag=message.flag,
            system_flag=message.system_flag,
            born_ms=message.born_ms,
            born_host=message.born_host_bytes,
            reconsume_times=message.reconsume_times,
        )
        try:
            self._store.append(draft)
        except OrbitError as error:
            log.warning("delayed message waits topic=%s reason=%s", topic, error)
            return False
        self._on_delivered(draft)
        return True

    def _within(self, level: int, offset: QueueOffset) -> QueueOffset:
        start = self._store.start_of(SCHEDULE_TOPIC, level - 1)
        end = self._store.end_of(SCHEDULE_TOPIC, level - 1)
        return max(start, min(offset, end))
