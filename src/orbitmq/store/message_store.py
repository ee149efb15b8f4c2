"""The front door of the store: put messages in, get them out, through one object.

Threads: `append` and `put` from any thread, one at a time inside; reads from any thread at any
time; flushing and upkeep in threads of their own, from opening to `close`.
Crash: opening recovers; see `opening.parts` and `opening.recovery`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from orbitmq.clock import SystemClock
from orbitmq.errors import DiskFullError, MessageError, StateError, StoreError
from orbitmq.model.queues import PhysicalOffset, QueueBounds, QueueOffset
from orbitmq.record.hosts import encode_host
from orbitmq.store.config import FlushMode, StoreConfig
from orbitmq.store.index.consume_queue import EXTENSION_FOLDER
from orbitmq.store.log.draft import Draft, Receipt, StoreDurability
from orbitmq.store.log.fast_forms import Appender
from orbitmq.store.log.flush import Flusher
from orbitmq.store.log.log_copy import LogCopy
from orbitmq.store.log.obstacles import CLOSED, DISK_FULL, OPENING, Obstacles, unwritable
from orbitmq.store.opening.cut_intent import forget_intent
from orbitmq.store.opening.log_scans import ends_after
from orbitmq.store.opening.parts import log_folders, open_parts
from orbitmq.store.reading.memory_log import FIRST_OFFSET
from orbitmq.store.reading.memory_topics import MemoryTopics
from orbitmq.store.reading.reserved_offsets import first_number
from orbitmq.store.reading.scrubbing import Scrub
from orbitmq.store.retention import (
    Deletion,
    Gate,
    Retention,
    RetentionConfig,
    RetentionPlan,
    measure_disk,
)
from orbitmq.store.stored_messages import StoredMessages
from orbitmq.store.topic_storage import TopicStorage
from orbitmq.store.upkeep import Intervals, Upkeep
from orbitmq.store.visibility import OnVisible, Visibility

if TYPE_CHECKING:
    from pathlib import Path

    from orbitmq.clock import Clock
    from orbitmq.store.log.appender import Entry
    from orbitmq.store.log.commit_log import LogStretch
    from orbitmq.store.opening.cut_intent import Cut
    from orbitmq.store.reading.reserved_offsets import QueueKey
    from orbitmq.store.retention import DiskUse

log = logging.getLogger(__name__)

# The log of a slave grows only by what it copies.
_EVERYTHING: Final = 2**63 - 1


class MessageStore(StoredMessages):
    """A store directory, open for writing."""

    def __init__(
        self,
        config: StoreConfig,
        *,
        retention: RetentionConfig | None = None,
        clock: Clock | None = None,
        store_host: tuple[str, int] = ("127.0.0.1", 10911),
        measure: Callable[[Path], DiskUse] = measure_disk,
        held: bool = False,
        is_copy: bool = False,
        copied_until: int = 0,
    ) -> None:
        """Open a directory; `held` shows no more than was visible before, until `limit_visible`.

        `is_copy` says that the log is copied from a master, `copied_until` up to where it was, if
        this is the store of a master that was a slave.
        """
        self._config = config
        self._clock = clock or SystemClock()
        self._store_host = encode_host(*store_host)
        copied_until = _EVERYTHING if is_copy else copied_until
        parts = open_parts(config, self._clock, held=held, copied_until=copied_until)
        memory = MemoryTopics(
            parts.reserved_offsets,
            config,
            store_host=self._store_host,
            last_store_ms=parts.last_store_ms,
            disk_ends={(queue.topic, queue.queue_id): queue.end for queue in parts.queues},
            is_copy=is_copy,
        )
        super().__init__(parts, config, memory)
        obstacles = self._obstacles = Obstacles()
        self._needs: list[tuple[Callable[[], PhysicalOffset], str]] = []
        self._growth_callbacks: tuple[Callable[[], None], ...] = ()
        self._visibility = Visibility(
            parts.dispatcher,
            parts.watermark,
            obstacles,
            limit=parts.watermark.offset if held else None,
        )
        if parts.trouble is not None:
            log.error("messages refused until the disk has room reason=%s", parts.trouble)
            obstacles.errors[OPENING] = unwritable(parts.trouble)
            self._visibility.postpone(self._log.end, parts.trouble)
        self._flusher = Flusher(
            sync=self._log.sync,
            dirty_bytes=lambda: self._log.end - self._log.flushed,
            on_round=self._after_flush,
            obstacles=obstacles,
            clock=self._clock,
            interval_ms=config.flush_interval_ms,
            pages_min=config.flush_pages_min,
            thorough_interval_ms=config.flush_thorough_interval_ms,
        )
        retention = retention or RetentionConfig()
        self._retention = Retention(
            config=retention,
            commit_log=self._log,
            queues=self._queues,
            indexes=self._indexes,
            log_folders=log_folders(parts.root, config.log_path),
            queue_folder=parts.root / "consumequeue",
            clock=self._clock,
            measure=measure,
            before_deletion=self._note_log_start,
        )
        self.scrub = Scrub(
            parts.dispatcher,
            read=self.read,
            bytes_per_second=config.scrub_bytes_per_second,
            has_extensions=(parts.root / EXTENSION_FOLDER).exists(),
            clock=self._clock,
        )
        self._upkeep = Upkeep(
            commit_log=self._log,
            queues=self._queues,
            save=lambda: parts.progress_saver.save(self._flush_log),
            retry=self._retry,
            fence=self._flusher.fence,
            retain=self._retain,
            scrub=self.scrub.step,
            obstacles=obstacles,
            clock=self._clock,
            intervals=Intervals(
                round_ms=config.queue_flush_interval_ms,
                thorough_ms=config.queue_flush_thorough_interval_ms,
                retain_ms=retention.interval_ms,
            ),
        )
        # The broker's hot path appends through it, without a draft or receipt per message.
        self.appender = Appender(
            self._log,
            store_host=self._store_host,
            body_bytes_max=config.body_bytes_max,
            last_store_ms=parts.last_store_ms,
            next_offsets={
                (topic.encode(errors="surrogateescape"), queue_id): end
                for topic, queue_id, end in self._next_on_disk()
            },
            obstacles=obstacles,
            on_growth=self._upkeep.wake_if_needed,
            memory=memory,
        )
        self._topic_storage = TopicStorage(
            commit_log=self._log,
            queues=self._queues,
            memory=memory,
            deleted_topics=parts.deleted_topics,
            appender=self.appender,
            visibility=self._visibility,
            dispatcher=parts.dispatcher,
            obstacles=obstacles,
            flush_log=self._flush_log,
        )
        # Takes a master's log, in the store of a slave; nothing else is appended there then.
        self.copy = LogCopy(
            self._log,
            lock=self.appender.lock,
            obstacles=obstacles,
            on_growth=self._upkeep.wake_if_needed,
            on_start=self._note_log_start,
        )
        try:
            self._flusher.start(self._log.flushed)
            self._upkeep.start()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Put everything on disk and release the directory, for a clean next opening.

        If the store is fenced or its queues cannot be written, the next opening recovers.
        """
        with self.appender.lock:
            if CLOSED in self._obstacles.errors:
                return
            self._obstacles.errors[CLOSED] = lambda: StateError("the store is closed")
        self.copy.drop_part()
        self._upkeep.stop()
        self._flusher.stop()
        self.appender.close()
        try:
            if not self._flusher.is_fenced:
                self._save_all()
        except (OSError, StoreError) as error:
            log.warning("store not closed cleanly; the next start recovers reason=%s", error)
        finally:
            self._parts.resources.close()

    def _save_all(self) -> None:
        self._visibility.show(self._log.end)
        if self._visibility.trouble is not None:
            raise self._visibility.trouble
        self._memory.close()
        self._log.drop_next_file()
        self._parts.progress_saver.save(lambda _: self._flusher.flushed)
        self._note_log_start(self._log.start)
        if self._visibility.offset == self._log.end:
            # Compat: after a clean stop, Java does not fill up queues that lag behind the log.
            self._parts.abort_file.remove()

    def __enter__(self) -> MessageStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- putting ------------------------------------------------------------------------------

    def put(self, draft: Draft) -> Receipt:
        """Store a message; under SYNC_FLUSH returns once it is on disk."""
        return self.confirm([self.append(draft)])[0]

    def put_batch(self, drafts: Sequence[Draft]) -> list[Receipt]:
        """Store messages of one queue; under SYNC_FLUSH returns once they are on disk."""
        return self.confirm(self.append_batch(drafts))

    def append(self, draft: Draft) -> Receipt:
        """Write a message to the log without waiting for the disk."""
        place = self.appender.append(
            draft.topic.encode(),
            draft.queue_id,
            draft.body,
            draft.properties,
            draft.flag,
            draft.system_flag,
            draft.born_ms,
            draft.born_host,
            draft.reconsume_times,
            draft.prepared_offset,
            self._clock.now_ms(),
        )
        return Receipt(*place, self._store_host)

    def append_batch(self, drafts: Sequence[Draft]) -> list[Receipt]:
        """Write messages of one queue to the log, one after another, all or none of them."""
        if not drafts:
            return []
        topic, queue_id = drafts[0].topic, drafts[0].queue_id
        entries: list[Entry] = []
        for draft in drafts:
            if draft.topic != topic or draft.queue_id != queue_id:
                raise MessageError(
                    "a batch has messages of several queues", hint="send one batch per queue"
                )
            entries.append(draft.entry)
        places = self.appender.append_batch(topic.encode(), queue_id, entries, self._clock.now_ms())
        return [Receipt(*place, self._store_host) for place in places]

    def confirm(self, receipts: Sequence[Receipt]) -> list[Receipt]:
        """Wait for the durability that the flush mode promises; sets what each receipt reached."""
        if not receipts:
            return []
        if self._config.flush_mode is FlushMode.ASYNC:
            self._flusher.check()
            self.publish()
            return list(receipts)
        on_disk = [receipt for receipt in receipts if receipt.physical_offset < FIRST_OFFSET]
        if not on_disk:
            self._notify_memory_growth()
            return list(receipts)
        self.request_flush()
        reached = self._flusher.wait(on_disk[-1].end, self._config.flush_timeout_ms)
        durability = StoreDurability.DISK if reached else StoreDurability.DISK_TIMEOUT
        for receipt in on_disk:
            receipt.durability = durability
        return list(receipts)

    def publish(self) -> None:
        """Under ASYNC_FLUSH, make everything appended visible; call it once per chunk."""
        self._notify_memory_growth()
        if self._config.flush_mode is FlushMode.ASYNC and not self._flusher.is_fenced:
            self._visibility.show(self._log.end)
            for callback in self._growth_callbacks:
                callback()

    def request_flush(self) -> None:
        """Request a flush round without waiting for it; call it once per chunk."""
        self._notify_memory_growth()
        self._flusher.request()

    def settle(self) -> None:
        """Request a flush or publish, as the flush mode has it; call it once per chunk."""
        if self._config.flush_mode is FlushMode.SYNC:
            self.request_flush()
        else:
            self.publish()

    def flush(self) -> None:
        """Put everything appended so far on disk; raises if the store is fenced."""
        self._flush_log(self._log.end)

    # --- topics -------------------------------------------------------------------------------

    @property
    def memory_topics(self) -> frozenset[str]:
        """The topics kept in memory; a restart remembers those that had a message there."""
        return frozenset(self._memory.topics)

    def keep_in_memory(self, topic: str) -> None:
        """Keep new messages of a topic in memory; those on disk stay readable there."""
        self._topic_storage.keep_in_memory(topic)

    def keep_on_disk(self, topic: str) -> None:
        """Keep new messages of a topic on disk again; those in memory are dropped."""
        self._topic_storage.keep_on_disk(topic)

    def reserved_offsets(self) -> dict[QueueKey, QueueOffset]:
        """Where the numbers end that are reserved for queues in memory."""
        return self._memory.reserved

    def follow_reserved_offsets(self, reserved: Mapping[QueueKey, QueueOffset]) -> None:
        """In the store of a slave, keep what its master reserved; on disk when this returns."""
        self._topic_storage.follow_reserved(reserved)

    def begin_reign(self, epoch: int, memory_topics: Set[str]) -> None:
        """As the master of an epoch, give messages in memory numbers that no master before gave.

        Of the topics that the last master had in memory, only these are kept.
        """
        with self.appender.lock:
            gone = self._memory.topics - memory_topics
            self._memory.count_from(first_number(epoch), memory_topics)
            for topic, queue_id, end in self._next_on_disk():
                if topic in gone:
                    self.appender.set_next_offset(topic.encode(), queue_id, end)

    def delete_topic(self, topic: str, *, until: PhysicalOffset | None = None) -> None:
        """Delete a topic's queues; its records age out, and its next message has number 0.

        With `until`, records from there on belong to a topic that was created again.
        """
        self._topic_storage.delete(topic, until=until)

    def deleted_topics(self) -> dict[str, PhysicalOffset]:
        """Where in the log each deleted topic ended."""
        return self._parts.deleted_topics.ends

    def restore_topic(self, topic: str, *, noted: int, deleted_until: PhysicalOffset) -> bool:
        """Fill the queues of a topic that was deleted at `noted` from the log again; blocks.

        Its records below `deleted_until` stay deleted. Returns False if it was deleted elsewhere.
        """
        return self._topic_storage.restore(topic, deleted_until, noted=noted)

    def raise_deletion(self, topic: str, *, deleted_until: PhysicalOffset) -> None:
        """Delete what a topic that was created again had before, below an offset; may block."""
        self._topic_storage.raise_deletion(topic, deleted_until)

    def lower_deletion(self, topic: str, *, noted: int, deleted_until: PhysicalOffset) -> None:
        """Note that a topic without records from there on was deleted below the offset noted."""
        self._topic_storage.lower_deletion(topic, deleted_until, noted=noted)

    # --- the store as a whole -------------------------------------------------------------------

    def delete_expired(self) -> tuple[Deletion, ...]:
        """Delete expired files now, at any hour; the next passes delete what is left."""
        if CLOSED in self._obstacles.errors:
            raise StateError("the store is closed")
        self._retention.request()
        return self._retain().deletions

    def protect_log_from(self, needed_from: Callable[[], PhysicalOffset], needed_by: str) -> None:
        """Keep the log from the offset on that `needed_from` returns; called before each pass.

        `needed_by` says who needs it, and what to do; for the log.
        """
        self._needs.append((needed_from, needed_by))

    def gate_retention(self, gate: Callable[[], Gate | None]) -> None:
        """Let retention wait for what `gate` says in each pass; called in the upkeep's thread."""
        self._retention.gate = gate

    def finish_retention_pass(self) -> None:
        """Return once no pass is under way that began before; blocks."""
        self._retention.finish_pass()

    def overdue_files(self, offset: int) -> int:
        """How many log files were past their time in the last pass, and reach beyond an offset."""
        return self._retention.overdue_from(offset)

    def change_options(
        self, *, store: StoreConfig | None = None, retention: RetentionConfig | None = None
    ) -> None:
        """Apply new values of the options that may change while the store is open."""
        if store is not None:
            self.appender.body_bytes_max = store.body_bytes_max
        if retention is not None:
            self._retention.config = retention

    @property
    def was_cut(self) -> Cut | None:
        """What was cut from the log, until `forget_cut`; None if nothing was.

        Whoever keeps positions in the log or in queues outside the store must lower them.
        """
        return self._parts.cut

    def forget_cut(self) -> None:
        """Forget that the log was cut, once everything is lowered; on disk when this returns."""
        if self._parts.cut is not None:
            forget_intent(self._parts.root)
            self._parts.cut = None

    @property
    def store_host(self) -> bytes:
        """The address of this store in records and message ids."""
        return self._store_host

    def fence(self, reason: str) -> None:
        """Stop acknowledging, as after a failed sync."""
        self._flusher.fence(reason)

    @property
    def is_fenced(self) -> bool:
        """Whether a sync failed, so that nothing more is acknowledged."""
        return self._flusher.is_fenced

    @property
    def flushed(self) -> PhysicalOffset:
        """Everything below is on disk."""
        return self._flusher.flushed

    def on_flushed(self, callback: Callable[[PhysicalOffset], None]) -> None:
        """Call `callback` with the flushed offset, once per flush round."""
        self._flusher.add_listener(callback)

    def on_growth(self, callback: Callable[[], None]) -> None:
        """Call `callback` when `settled` has grown, once per flush round or published chunk."""
        if self._config.flush_mode is FlushMode.SYNC:
            self.on_flushed(lambda _: callback())
        else:
            self._growth_callbacks = (*self._growth_callbacks, callback)

    @property
    def settled(self) -> PhysicalOffset:
        """The end of what slaves may copy: on disk under SYNC_FLUSH, else all of the log."""
        return self.flushed if self._config.flush_mode is FlushMode.SYNC else self._log.end

    def stretch_at(self, offset: int, size_max: int) -> LogStretch | None:
        """Bytes that slaves may copy from `offset` on, in one file; None if there are none."""
        return self._log.stretch_at(offset, self.settled, size_max)

    def limit_visible(self, limit: PhysicalOffset | None) -> None:
        """Show nothing above `limit`, a place between two records; None ends the limit."""
        self._visibility.limit(limit)

    def on_visible(self, callback: OnVisible) -> None:
        """Call `callback` with the queues that grew, once per flush round or published chunk.

        For queues in memory, `publish`, `request_flush` or `confirm` calls it.
        """
        self._visibility.add_listener(callback)

    def end_of(self, topic: str, queue_id: int, *, committed: bool = True) -> QueueOffset:
        """The offset after the newest visible message, or after the newest appended one."""
        if committed:
            return super().end_of(topic, queue_id)
        appended = self.appender.next_offset(topic.encode(), queue_id)
        return super().end_of(topic, queue_id) if appended is None else appended

    def appended_queues(self) -> list[QueueBounds]:
        """The bounds of every queue, with what is in the log and not visible yet; blocks."""
        visible, end = self.visible, self._log.end
        found = {(each.topic, each.queue_id): each for each in self.queues()}
        hidden = ends_after(self._log, visible, end, self._parts.deleted_topics)
        for (topic, queue_id), queue_end in hidden.items():
            known = found.get((topic, queue_id))
            # More may have become visible meanwhile.
            if known is None or known.end < queue_end:
                start = known.start if known is not None else QueueOffset(0)
                found[topic, queue_id] = QueueBounds(topic, queue_id, start, queue_end)
        return list(found.values())

    # --- inside -------------------------------------------------------------------------------

    def _retain(self) -> RetentionPlan:
        # Invariant: queue entries are on disk before their records are deleted; otherwise queues
        # would reuse numbers after a crash.
        saved = self._parts.progress_file.saved.dispatched
        keep_from, needed_by = min(
            [
                (min(saved, self._flusher.flushed, self.visible), ""),
                *((needed_from(), needed_by) for needed_from, needed_by in self._needs),
            ]
        )
        try:
            return self._retention.run(keep_from=keep_from, needed_by=needed_by)
        finally:
            if self._retention.refusal:
                self._obstacles.errors[DISK_FULL] = self._retention.error
            else:
                self._obstacles.errors.pop(DISK_FULL, None)

    def _retry(self) -> None:
        """Do what a full disk did not allow before."""
        self._parts.abort_file.write()
        self._log.allocate_newest()
        self._visibility.retry()
        self._obstacles.errors.pop(OPENING, None)

    def _note_log_start(self, log_start: int) -> None:
        try:
            self._parts.shape_file.raise_log_start(log_start)
        except (OSError, StoreError) as error:
            # Room is needed more than the next start's word that nothing is missing.
            log.warning("start of the log not saved start=%d reason=%s", log_start, error)

    def _after_flush(self, flushed: PhysicalOffset) -> None:
        with suppress(DiskFullError):
            # Older progress is true as well; upkeep reports the full disk.
            self._parts.progress_file.raise_flushed(flushed)
        if self._config.flush_mode is FlushMode.SYNC:
            self._visibility.show(flushed)

    def _next_on_disk(self) -> Iterator[tuple[str, int, QueueOffset]]:
        """The next offsets of the queues whose topics are kept on disk."""
        for queue in self._queues:
            if queue.topic not in self._memory.topics:
                yield queue.topic, queue.queue_id, queue.end
        for (topic, queue_id), end in self._parts.later_ends.items():
            if topic not in self._memory.topics:
                yield topic, queue_id, end
        for (topic, queue_id), end in self._memory.moved_ends().items():
            yield topic, queue_id, end

    def _notify_memory_growth(self) -> None:
        if self._memory.grown:
            with self.appender.lock:
                grown = self._memory.take_grown()
            self._visibility.notify(grown)

    def _flush_log(self, offset: PhysicalOffset) -> PhysicalOffset:
        self._flusher.request()
        self._flusher.wait(offset, None)
        return self._flusher.flushed
