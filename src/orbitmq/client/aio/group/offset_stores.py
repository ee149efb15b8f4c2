"""Where consumers keep their offsets: at the brokers, or in a file here.

Members of a clustering group keep them at the brokers, for the others to go on from; a broadcasting
consumer reads everything itself and keeps them in a file. Both hold them in memory first and are
asked to persist every few seconds, when a queue is given up, and at the end.

Threads: a store belongs to the event loop of its consumer.
Crash: what was not persisted is consumed again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from orbitmq.client.core.consuming.local_offsets import encode_offsets, find_offsets, offsets_path
from orbitmq.client.core.consuming.offset_ledger import CommittableWindow, OffsetLedger
from orbitmq.disk import off_loop, replace_file
from orbitmq.errors import LocalOffsetsError, OrbitError, TransportError
from orbitmq.model.queues import MessageQueue, by_broker
from orbitmq.model.subscriptions import BROADCASTING

if TYPE_CHECKING:
    from orbitmq.client.aio.instance.client_instance import ClientInstance
    from orbitmq.client.options import ConsumerOptions
    from orbitmq.clock import Clock

log = logging.getLogger(__name__)

# A broker that crashed, or a commit lost on the way: after this long all offsets are told again.
RECOMMIT_MS: Final = 60_000
# How long a reset is remembered for whoever takes the queue again.
RESET_LIFE_MS: Final = 10_000


class OffsetCalls(Protocol):
    """Calls to brokers that a store makes."""

    async def committed_offset(self, queue: MessageQueue, group: str) -> int | None:
        """Ask how far a group has come; None when it has committed nothing."""

    async def commit_offset(
        self, queue: MessageQueue, group: str, offset: int, *, oneway: bool = True
    ) -> None:
        """Say how far a group has come."""


class OffsetStore(Protocol):
    """The offsets of one consumer, in memory and where they last."""

    async def load(self) -> None:
        """Read what was kept before; called once, at the start."""

    async def read(self, queue: MessageQueue) -> int | None:
        """Give the offset of a queue, from memory or from where it lasts; None if there is none."""

    def record(self, queue: MessageQueue, window: CommittableWindow) -> None:
        """Take over what the present window of a queue may commit."""

    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool = True) -> None:
        """Go on to an offset; a lower one counts only when asked for."""

    def reset(self, queue: MessageQueue, offset: int) -> None:
        """Set an offset from outside; nothing moves it until the queue is removed."""

    def disown(self, queue: MessageQueue) -> None:
        """Keep nothing more of a queue that is another client's by now, until it is removed."""

    def remove(self, queue: MessageQueue) -> None:
        """Forget a queue that was given up."""

    def cached(self, queue: MessageQueue) -> int | None:
        """Give the offset that is in memory."""

    def offsets(self, topic: str | None = None) -> dict[MessageQueue, int]:
        """Give the offsets in memory, of one topic or of all."""

    async def commit(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Set offsets, lower ones too, and keep them; raises when one cannot be kept."""

    async def persist(self, queues: Collection[MessageQueue]) -> None:
        """Keep the offsets of these queues, and be sure of it where that can be had."""

    async def persist_all(self) -> None:
        """Keep all offsets that have changed; what cannot be kept now is tried again next time."""


class _LedgerStore:
    """The half of a store that is in memory."""

    def __init__(self) -> None:
        self._ledger = OffsetLedger()

    def record(self, queue: MessageQueue, window: CommittableWindow) -> None:
        """Take over what the present window of a queue may commit."""
        self._ledger.record(queue, window)

    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool = True) -> None:
        """Go on to an offset; a lower one counts only when asked for."""
        self._ledger.update(queue, offset, increase_only=increase_only)

    def reset(self, queue: MessageQueue, offset: int) -> None:
        """Set an offset from outside; nothing moves it until the queue is removed."""
        self._ledger.reset(queue, offset)

    def disown(self, queue: MessageQueue) -> None:
        """Keep nothing more of a queue that is another client's by now, until it is removed."""
        self._ledger.disown(queue)

    def remove(self, queue: MessageQueue) -> None:
        """Forget a queue that was given up."""
        self._ledger.remove(queue)

    def cached(self, queue: MessageQueue) -> int | None:
        """Give the offset that is in memory."""
        return self._ledger.read(queue)

    def offsets(self, topic: str | None = None) -> dict[MessageQueue, int]:
        """Give the offsets in memory, of one topic or of all."""
        return self._ledger.offsets(topic)


class BrokerOffsets(_LedgerStore):
    """Offsets that the brokers of the queues keep for a group."""

    def __init__(self, group: str, calls: OffsetCalls, clock: Clock) -> None:
        super().__init__()
        self._group = group
        self._calls = calls
        self._clock = clock
        self._recommitted_ms = clock.monotonic_ms()
        self._refused: set[MessageQueue] = set()
        # Compat: official brokers work on commits in many threads, so that an earlier one can
        # overtake a later one and take the group back. Of a queue one is under way at a time.
        self._turns: dict[MessageQueue, asyncio.Lock] = {}
        # For the same reason a pull, which carries an offset too, can overtake a reset.
        self._resets: dict[MessageQueue, tuple[int, float]] = {}

    def reset(self, queue: MessageQueue, offset: int) -> None:
        """Set an offset from outside; whoever takes the queue again here begins with it."""
        super().reset(queue, offset)
        self._resets[queue] = (offset, self._clock.monotonic_ms() + RESET_LIFE_MS)

    def remove(self, queue: MessageQueue) -> None:
        """Forget a queue that was given up."""
        super().remove(queue)
        self._turns.pop(queue, None)

    async def load(self) -> None:
        """Do nothing: each queue is asked for when it is taken."""

    async def read(self, queue: MessageQueue) -> int | None:
        """Give the offset of a queue, from memory or from its broker; None if there is none."""
        if (cached := self._ledger.read(queue)) is not None:
            return cached
        if (reset := self._resets.pop(queue, None)) is not None:
            offset, end_ms = reset
            if self._clock.monotonic_ms() < end_ms:
                # Said once more with the next commits, in case a pull came between.
                self._ledger.update(queue, offset)
                return offset
        committed = await self._calls.committed_offset(queue, self._group)
        if committed == 0:
            # Compat: of a young queue brokers say so when nothing is committed. Said back, it holds
            # when the queue is no longer young.
            self._ledger.update(queue, 0)
        elif committed is not None and queue not in self._ledger:
            self._ledger.load(queue, committed)
        return committed

    async def commit(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Set offsets, lower ones too; raises what a broker refuses, once all were asked."""
        for queue, offset in offsets.items():
            self._ledger.update(queue, offset, increase_only=False)
        commits = (self._commit_in_turn(queue, offset) for queue, offset in offsets.items())
        outcomes = await asyncio.gather(*commits, return_exceptions=True)
        for outcome in outcomes:
            if outcome is not None:
                raise outcome

    async def persist(self, queues: Collection[MessageQueue]) -> None:
        """Commit the offsets of these queues and wait until the brokers have them."""
        await self._commit(self._ledger.dirty(queues))

    async def persist_all(self) -> None:
        """Commit all offsets that have changed."""
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._recommitted_ms >= RECOMMIT_MS:
            self._recommitted_ms = now_ms
            self._ledger.mark_all_dirty()
        await self._commit(self._ledger.dirty())

    async def _commit_in_turn(self, queue: MessageQueue, offset: int | None = None) -> None:
        """Commit an offset, or what has changed by then, once no commit of the queue is under way."""
        async with self._turns.setdefault(queue, asyncio.Lock()):
            if offset is None:
                offset = self._ledger.dirty([queue]).get(queue)
            if offset is not None:
                await self._calls.commit_offset(queue, self._group, offset, oneway=False)
                self._ledger.mark_stored(queue, offset)

    async def _commit(self, queues: Collection[MessageQueue]) -> None:
        # One broker that does not answer holds up its own queues only.
        await asyncio.gather(
            *(
                self._commit_at(broker_name, of_broker)
                for broker_name, of_broker in by_broker(queues).items()
            )
        )

    async def _commit_at(self, broker_name: str, queues: list[MessageQueue]) -> None:
        for position, queue in enumerate(queues):
            try:
                await self._commit_in_turn(queue)
            except TransportError as error:
                self._warn(broker_name, len(queues) - position, error)
                return
            except OrbitError as error:
                # Of this queue only; told once, since it is tried again every few seconds.
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
    """Offsets in a file that Java's client could go on with."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._kept: dict[MessageQueue, int] = {}
        self._writing = asyncio.Lock()

    async def load(self) -> None:
        """Read the file, or its backup when the file is damaged."""
        self._kept = await off_loop(_read, self._path)

    async def read(self, queue: MessageQueue) -> int | None:
        """Give the offset of a queue, from memory or as the file has it; None if there is none."""
        cached = self._ledger.read(queue)
        if cached is None and (cached := self._kept.get(queue)) is not None:
            self._ledger.load(queue, cached)
        return cached

    async def commit(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Set offsets, lower ones too, and write them; raises when that fails."""
        for queue, offset in offsets.items():
            self._ledger.update(queue, offset, increase_only=False)
        try:
            await self._write(offsets.keys())
        except OSError as error:
            raise LocalOffsetsError(
                f"cannot write {self._path}: {error.strerror}",
                hint="its folder must be writable; another can be chosen",
            ) from error

    async def persist(self, queues: Collection[MessageQueue]) -> None:
        """Write the offsets of these queues."""
        await self._try_to_write(queues)

    async def persist_all(self) -> None:
        """Write all offsets that have changed."""
        await self._try_to_write(None)

    async def _try_to_write(self, queues: Collection[MessageQueue] | None) -> None:
        try:
            await self._write(queues)
        except (OSError, LocalOffsetsError) as error:
            log.warning("offsets not written file=%s reason=%s", self._path, error)

    async def _write(self, queues: Collection[MessageQueue] | None) -> None:
        async with self._writing:
            dirty = self._ledger.dirty(queues)
            if not dirty:
                return
            self._kept = await off_loop(_merge, self._path, dirty)
            for queue, offset in dirty.items():
                self._ledger.mark_stored(queue, offset)


def offset_store_of(instance: ClientInstance, group: str, options: ConsumerOptions) -> OffsetStore:
    """Make the store that a consumer's message model asks for."""
    if options.message_model == BROADCASTING:
        return LocalOffsets(offsets_path(options.local_offset_dir, instance.client_id, group))
    return BrokerOffsets(group, instance.brokers, instance.clock)


def _read(path: Path) -> dict[MessageQueue, int]:
    backup = path.with_name(path.name + ".bak")
    try:
        found = find_offsets(path, _content(path), _content(backup))
        if found.is_damaged:
            # Its content must not become the backup, in the place of the last sound one.
            path.replace(path.with_name(path.name + ".damaged"))
    except OSError as error:
        raise LocalOffsetsError(
            f"cannot read {path}: {error.strerror}",
            hint="its folder must be readable and writable; another can be chosen",
        ) from error
    return found.offsets


def _merge(path: Path, changed: dict[MessageQueue, int]) -> dict[MessageQueue, int]:
    """Write what changed into the file, and give all that is in it now.

    Queues that are not there now keep their offsets, and so do those that another process with the
    same client id wrote.
    """
    offsets = _read(path) | changed
    replace_file(path, encode_offsets(offsets))
    return offsets


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
