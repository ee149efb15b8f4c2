"""Where consumers store their offsets: at the brokers, or in a local file.

Members of a clustering group store them at the brokers, where another member can resume. A
broadcasting consumer reads everything itself and uses a file. Both keep offsets in memory first and
persist them every few seconds, when a queue is given up, and when the consumer stops.

Threads: a store belongs to the event loop of its consumer.
Crash: messages whose offset was not persisted are consumed again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from orbitmq.client.core.consuming.local_offsets import encode_offsets, find_offsets, offsets_path
from orbitmq.client.core.consuming.offset_ledger import CommittableWindow, OffsetLedger
from orbitmq.disk import off_loop, replace_file, to_end_off_loop
from orbitmq.errors import LocalOffsetsError, OrbitError, TransportError
from orbitmq.model.queues import MessageQueue, by_broker
from orbitmq.model.subscriptions import BROADCASTING

if TYPE_CHECKING:
    from orbitmq.client.aio.instance.client_instance import ClientInstance
    from orbitmq.client.options import ConsumerOptions
    from orbitmq.clock import Clock

log = logging.getLogger(__name__)

# All offsets are committed again after this time, in case a broker has crashed or a commit was lost.
RECOMMIT_MS: Final = 60_000
# How long a reset offset counts when this client takes the queue again.
RESET_LIFE_MS: Final = 10_000


class OffsetCalls(Protocol):
    """Calls to brokers that a store makes."""

    async def committed_offset(self, queue: MessageQueue, group: str) -> int | None:
        """Fetch the committed offset of a group; None if it has committed none."""

    async def commit_offset(
        self, queue: MessageQueue, group: str, offset: int, *, oneway: bool = True
    ) -> bool:
        """Commit the offset of a group; False if only a slave has it now."""


class OffsetStore(Protocol):
    """The offsets of one consumer, in memory and persisted."""

    async def load(self) -> None:
        """Load the persisted offsets; called once, at the start."""

    async def read(self, queue: MessageQueue) -> int | None:
        """Return the offset of a queue, from memory or persisted; None if there is none."""

    def record(self, queue: MessageQueue, window: CommittableWindow) -> None:
        """Record the committable offset of a queue's current window."""

    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool = True) -> None:
        """Set the offset of a queue; a lower one only with `increase_only=False`."""

    def reset(self, queue: MessageQueue, offset: int) -> None:
        """Fix the offset of a queue until the queue is removed."""

    def disown(self, queue: MessageQueue) -> None:
        """Drop the offset of a queue that another client now has; ignore updates until removed."""

    def remove(self, queue: MessageQueue) -> None:
        """Forget a queue that was given up."""

    def cached(self, queue: MessageQueue) -> int | None:
        """Return the offset in memory."""

    def offsets(self, topic: str | None = None) -> dict[MessageQueue, int]:
        """Return the offsets in memory, of one topic or of all."""

    async def commit(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Set offsets, even to lower ones, and persist them; raises if one cannot be persisted."""

    async def persist(self, queues: Collection[MessageQueue]) -> None:
        """Persist the changed offsets of these queues; logs a failure."""

    async def persist_all(self) -> None:
        """Persist all changed offsets; a failure is logged and retried at the next call."""


class _LedgerStore:
    """The in-memory half of a store."""

    def __init__(self) -> None:
        self._ledger = OffsetLedger()

    def record(self, queue: MessageQueue, window: CommittableWindow) -> None:
        """Record the committable offset of a queue's current window."""
        self._ledger.record(queue, window)

    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool = True) -> None:
        """Set the offset of a queue; a lower one only with `increase_only=False`."""
        self._ledger.update(queue, offset, increase_only=increase_only)

    def reset(self, queue: MessageQueue, offset: int) -> None:
        """Fix the offset of a queue until the queue is removed."""
        self._ledger.reset(queue, offset)

    def disown(self, queue: MessageQueue) -> None:
        """Drop the offset of a queue that another client now has; ignore updates until removed."""
        self._ledger.disown(queue)

    def remove(self, queue: MessageQueue) -> None:
        """Forget a queue that was given up."""
        self._ledger.remove(queue)

    def cached(self, queue: MessageQueue) -> int | None:
        """Return the offset in memory."""
        return self._ledger.read(queue)

    def offsets(self, topic: str | None = None) -> dict[MessageQueue, int]:
        """Return the offsets in memory, of one topic or of all."""
        return self._ledger.offsets(topic)


class BrokerOffsets(_LedgerStore):
    """Offsets that brokers store for a group."""

    def __init__(self, group: str, calls: OffsetCalls, clock: Clock) -> None:
        super().__init__()
        self._group = group
        self._calls = calls
        self._clock = clock
        self._recommitted_ms = clock.monotonic_ms()
        self._refused: set[MessageQueue] = set()
        # Compat: official brokers process commits in many threads, where a later commit can
        # overtake an earlier one. So only one commit per queue is in flight.
        self._commit_locks: dict[MessageQueue, asyncio.Lock] = {}
        # Compat: they also lose one of two commits that are the first of a group for a topic, if
        # both are processed at once. So the others of a topic wait for the reply to the first.
        self._first_commits: dict[tuple[str, str], asyncio.Event] = {}
        # For the same reason a reset can overtake a pull, which carries an offset too.
        self._resets: dict[MessageQueue, tuple[int, float]] = {}

    def reset(self, queue: MessageQueue, offset: int) -> None:
        """Fix the offset of a queue; if this client takes the queue again, it starts there."""
        super().reset(queue, offset)
        self._resets[queue] = (offset, self._clock.monotonic_ms() + RESET_LIFE_MS)

    def remove(self, queue: MessageQueue) -> None:
        """Forget a queue that was given up."""
        super().remove(queue)
        self._commit_locks.pop(queue, None)

    async def load(self) -> None:
        """Do nothing: the offset of a queue is fetched when the queue is taken."""

    async def read(self, queue: MessageQueue) -> int | None:
        """Return the offset of a queue, from memory or its broker; None if there is none."""
        if (cached := self._ledger.read(queue)) is not None:
            return cached
        if (reset := self._resets.pop(queue, None)) is not None:
            offset, end_ms = reset
            if self._clock.monotonic_ms() < end_ms:
                # It is committed again, in case a pull came in between.
                self._ledger.update(queue, offset)
                return offset
        committed = await self._calls.committed_offset(queue, self._group)
        if committed == 0:
            # Compat: brokers return 0 for a young queue without a commit. Committing it keeps the
            # answer when the queue is no longer young.
            self._ledger.update(queue, 0)
        elif committed is not None and queue not in self._ledger:
            self._ledger.load(queue, committed)
        return committed

    async def commit(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Commit offsets, even lower ones; raises the first failure once all were sent."""
        for queue, offset in offsets.items():
            self._ledger.update(queue, offset, increase_only=False)
        commits = (self._commit_in_turn(queue, offset) for queue, offset in offsets.items())
        outcomes = await asyncio.gather(*commits, return_exceptions=True)
        for outcome in outcomes:
            if outcome is not None:
                raise outcome

    async def persist(self, queues: Collection[MessageQueue]) -> None:
        """Commit the changed offsets of these queues, and wait for the brokers' replies."""
        await self._commit(self._ledger.dirty(queues))

    async def persist_all(self) -> None:
        """Commit all changed offsets."""
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._recommitted_ms >= RECOMMIT_MS:
            self._recommitted_ms = now_ms
            self._ledger.mark_all_dirty()
        await self._commit(self._ledger.dirty())

    async def _commit_in_turn(self, queue: MessageQueue, offset: int | None = None) -> None:
        """Commit an offset, or the changed one, once no commit of the queue is in flight."""
        async with self._commit_locks.setdefault(queue, asyncio.Lock()):
            if offset is None:
                offset = self._ledger.dirty([queue]).get(queue)
            # What only a slave has is committed again until the master has it.
            if offset is not None and await self._send_commit(queue, offset):
                self._ledger.mark_stored(queue, offset)

    async def _send_commit(self, queue: MessageQueue, offset: int) -> bool:
        """Commit an offset; False if only a slave has it now."""
        topic = queue.broker_name, queue.topic
        first = self._first_commits.get(topic)
        if first is not None:
            await first.wait()
            return await self._calls.commit_offset(queue, self._group, offset, oneway=False)
        replied = self._first_commits[topic] = asyncio.Event()
        try:
            return await self._calls.commit_offset(queue, self._group, offset, oneway=False)
        except BaseException:
            del self._first_commits[topic]
            raise
        finally:
            # Also after a failure: waiting for one timeout after the other would take too long.
            replied.set()

    async def _commit(self, queues: Collection[MessageQueue]) -> None:
        # A broker that does not answer must not delay the queues of others.
        await asyncio.gather(
            *(
                self._commit_to_broker(broker_name, part)
                for broker_name, part in by_broker(queues).items()
            )
        )

    async def _commit_to_broker(self, broker_name: str, queues: list[MessageQueue]) -> None:
        for position, queue in enumerate(queues):
            try:
                await self._commit_in_turn(queue)
            except TransportError as error:
                self._warn(broker_name, len(queues) - position, error)
                return
            except OrbitError as error:
                # Only this queue fails. Log it once: it is retried every few seconds.
                if queue not in self._refused:
                    self._refused.add(queue)
                    self._warn(broker_name, 1, error)
                continue
            self._refused.discard(queue)

    def _warn(self, broker_name: str, count: int, error: OrbitError) -> None:
        log.warning(
            "offsets not committed group=%s broker=%s queues=%d reason=%s",
            self._group,
            broker_name,
            count,
            error,
        )


class LocalOffsets(_LedgerStore):
    """Offsets in a local file, which Java's client can read too."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._file_offsets: dict[MessageQueue, int] = {}
        self._write_lock = asyncio.Lock()

    async def load(self) -> None:
        """Read the file, or its backup if the file is damaged."""
        self._file_offsets = await off_loop(_read, self._path)

    async def read(self, queue: MessageQueue) -> int | None:
        """Return the offset of a queue, from memory or the file; None if there is none."""
        cached = self._ledger.read(queue)
        if cached is None and (cached := self._file_offsets.get(queue)) is not None:
            self._ledger.load(queue, cached)
        return cached

    async def commit(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Set offsets, even to lower ones, and write them; raises if that fails."""
        for queue, offset in offsets.items():
            self._ledger.update(queue, offset, increase_only=False)
        try:
            await self._write(offsets.keys())
        except OSError as error:
            raise LocalOffsetsError(
                f"cannot write {self._path}: {error.strerror}",
                hint="make its folder writable, or choose another with local_offset_dir",
            ) from error

    async def persist(self, queues: Collection[MessageQueue]) -> None:
        """Write the changed offsets of these queues."""
        await self._try_to_write(queues)

    async def persist_all(self) -> None:
        """Write all changed offsets."""
        await self._try_to_write(None)

    async def _try_to_write(self, queues: Collection[MessageQueue] | None) -> None:
        try:
            await self._write(queues)
        except (OSError, LocalOffsetsError) as error:
            log.warning("offsets not written file=%s reason=%s", self._path, error)

    async def _write(self, queues: Collection[MessageQueue] | None) -> None:
        async with self._write_lock:
            dirty = self._ledger.dirty(queues)
            if not dirty:
                return
            self._file_offsets = await to_end_off_loop(_merge, self._path, dirty)
            for queue, offset in dirty.items():
                self._ledger.mark_stored(queue, offset)


def offset_store_of(instance: ClientInstance, group: str, options: ConsumerOptions) -> OffsetStore:
    """Make the offset store for a consumer's message model."""
    if options.message_model == BROADCASTING:
        return LocalOffsets(offsets_path(options.local_offset_dir, instance.client_id, group))
    return BrokerOffsets(group, instance.brokers, instance.clock)


def _read(path: Path) -> dict[MessageQueue, int]:
    backup = path.with_name(path.name + ".bak")
    try:
        found = find_offsets(path, _read_if_present(path), _read_if_present(backup))
        if found.is_damaged:
            # Damaged content must not replace the good backup.
            path.replace(path.with_name(path.name + ".damaged"))
    except OSError as error:
        raise LocalOffsetsError(
            f"cannot read {path}: {error.strerror}",
            hint="make its folder readable and writable, or choose another with local_offset_dir",
        ) from error
    return found.offsets


def _merge(path: Path, changed: dict[MessageQueue, int]) -> dict[MessageQueue, int]:
    """Write changed offsets into the file; returns all offsets in it.

    Other queues keep their offsets, as do those that another process with the same client id wrote.
    """
    offsets = _read(path) | changed
    replace_file(path, encode_offsets(offsets))
    return offsets


def _read_if_present(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
