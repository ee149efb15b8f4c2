"""Assembles the parts that keep, end and check transactions."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from orbitmq.broker.transactions.check_back import CheckBack
from orbitmq.broker.transactions.ending import Ending
from orbitmq.broker.transactions.half_messages import QUEUE_ID
from orbitmq.broker.transactions.half_queue import HalfQueue, Progress
from orbitmq.broker.transactions.marked_ends import MarkedEnds
from orbitmq.broker.transactions.open_transactions import OpenTransactions
from orbitmq.broker.transactions.recent_halves import RecentHalves
from orbitmq.broker.transactions.recovery import recover
from orbitmq.broker.transactions.resuming import Resuming
from orbitmq.disk import off_loop
from orbitmq.errors import OrbitError
from orbitmq.lifecycle import Periodic
from orbitmq.model.names import HALF_DONE_TOPIC, HALF_TOPIC, TRANSACTION_GROUP

if TYPE_CHECKING:
    from pathlib import Path

    from orbitmq.broker.config import BrokerConfig
    from orbitmq.broker.confirmations import Confirmations
    from orbitmq.broker.groups.committed_offsets import CommittedOffsets
    from orbitmq.broker.groups.members import Members
    from orbitmq.broker.storing import Storing
    from orbitmq.broker.topics.topic_table import TopicTable
    from orbitmq.clock import Clock
    from orbitmq.disk import FileModes
    from orbitmq.model.queues import PhysicalOffset
    from orbitmq.store.log.draft import Draft
    from orbitmq.store.message_store import MessageStore

log = logging.getLogger(__name__)

# A start searches about this much of the log for ends without a mark.
_SEARCHED_BYTES: Final = 16 * 1024 * 1024
_NEEDED_BY: Final = "open transactions hint=orbitmq transaction list shows them, and who was asked"


class Transactions:
    """The parts of a broker that keep half messages, end them, and ask about them."""

    def __init__(  # noqa: PLR0913  # by name, from one place
        self,
        *,
        config: Callable[[], BrokerConfig],
        hours_max: Callable[[], int],
        store: MessageStore,
        confirmations: Confirmations,
        storing: Storing,
        topics: TopicTable,
        members: Members,
        offsets: CommittedOffsets,
        on_committed: Callable[[Draft], None],
        own_folder: Path,
        modes: FileModes,
        clock: Clock,
        searched_bytes: int = _SEARCHED_BYTES,
    ) -> None:
        self._store = store
        self._searched_bytes = searched_bytes
        self._marked_ends = MarkedEnds(store, own_folder, modes)
        self._topics = topics
        self._offsets = offsets
        self.halves = HalfQueue(store, clock=clock)
        self.recent = RecentHalves(self.halves)
        self.ending = Ending(
            store,
            self.halves,
            confirmations,
            has_queue=self._has_queue,
            on_committed=on_committed,
            clock=clock,
        )
        self.check_back = CheckBack(
            config=config,
            hours_max=hours_max,
            store=store,
            halves=self.halves,
            members=members,
            topics=topics,
            clock=clock,
        )
        self.open_transactions = OpenTransactions(
            store=store, halves=self.halves, check_back=self.check_back, members=members
        )
        self.resuming = Resuming(store, self.halves, storing)
        self._saved = Progress(0, 0)
        self.saving = Periodic(
            "progress of transactions", config().offsets_flush_interval_ms, self.save, clock
        )
        self.checking = Periodic(
            "checks of transactions",
            config().transaction_check_interval_ms,
            self.check_back.check_all,
            clock,
        )

    async def load(self) -> None:
        """Read the open halves from the store, before clients can end or prepare any."""
        self._store.protect_log_from(self.halves.needed_from, _NEEDED_BY)
        saved = Progress(self._saved_offset(HALF_TOPIC), self._saved_offset(HALF_DONE_TOPIC))
        found = await off_loop(
            recover,
            self._store,
            halves_from=saved.halves,
            marks_from=saved.marks,
            marked_until=await off_loop(self._marked_ends.load),
        )
        self.halves.restore(found)
        for content, first_offset in found.recent:
            self.recent.add(content, first_offset)
        if found.unmarked:
            await off_loop(self._store.flush)
        self._saved = saved

    async def save(self) -> None:
        """Save the progress, once what it is based on is on disk."""
        self.halves.store_marks()
        progress = self.halves.progress()
        marked = self._marked_far_on()
        if progress == self._saved and marked is None:
            return
        await off_loop(self._store.flush)
        for topic, offset in (
            (HALF_TOPIC, progress.halves),
            (HALF_DONE_TOPIC, progress.marks),
        ):
            self._offsets.commit(TRANSACTION_GROUP, topic, QUEUE_ID, offset)
        self._saved = progress
        if marked is not None:
            await off_loop(self._marked_ends.save, *marked)

    async def stop(self) -> None:
        """Save the progress for the last time."""
        try:
            await self.save()
        except OrbitError as error:
            log.warning(
                "progress of transactions not saved; the next start reads more reason=%s", error
            )

    def _marked_far_on(self) -> tuple[PhysicalOffset, int] | None:
        """Where a search could begin, and the marks there; None if that is of little use."""
        marked_until = self.halves.marked_until()
        if marked_until is None or not len(self.halves):
            return None
        if marked_until - self._marked_ends.position < self._searched_bytes:
            return None
        return marked_until, self._store.end_of(HALF_DONE_TOPIC, QUEUE_ID, committed=False)

    def _saved_offset(self, topic: str) -> int:
        return self._offsets.get(TRANSACTION_GROUP, topic, QUEUE_ID) or 0

    def _has_queue(self, name: str, queue_id: int) -> bool:
        topic = self._topics.get(name)
        return topic is not None and queue_id < max(topic.read_queues, topic.write_queues)
