"""Administers offsets: bounds of queues, committed offsets, resets."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from orbitmq import java_json
from orbitmq.client.aio.admin.reach import readers_of
from orbitmq.errors import RemoteError
from orbitmq.model.queues import MessageQueue
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.offsets import (
    CloneOffsets,
    GetCommittedOffset,
    OffsetReply,
    QueueOffsetTable,
    ResetOffsets,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.client.aio.admin.reach import Reach

# The time that a reset takes for "after the last message".
END_OF_QUEUE: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetMove:
    """What a reset would do, or did, to a group in one queue."""

    queue: MessageQueue
    # The first offset of the queue.
    first: int
    committed: int | None
    target: int

    @property
    def consumed_again(self) -> int:
        """How many messages the group would consume again."""
        return max(0, (self.committed or 0) - self.target)

    @property
    def skipped(self) -> int:
        """How many messages the group would not get."""
        return max(0, self.target - max(self.first, self.committed or 0))

    @property
    def goes_back(self) -> bool:
        """Whether the group has committed an offset and would skip no message."""
        return self.committed is not None and not self.skipped


@dataclass(slots=True, eq=False)
class Offsets:
    """Reads bounds of queues, and reads and moves offsets of groups."""

    _reach: Reach

    async def first(self, queue: MessageQueue) -> int:
        """The first offset of a queue."""
        return await self._reach.calls.min_offset(queue)

    async def end(self, queue: MessageQueue) -> int:
        """The end of a queue: the offset that its next message will have."""
        return await self._reach.calls.max_offset(queue)

    async def at_time(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The offset of the first message stored at a time or later."""
        if timestamp_ms == END_OF_QUEUE:
            return await self.end(queue)
        return await self._reach.calls.offset_at(queue, timestamp_ms)

    async def committed(self, group: str, queue: MessageQueue) -> int | None:
        """The committed offset of a group in a queue; None if it committed nothing."""
        header = GetCommittedOffset(
            consumer_group=group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            # Compat: without it a Java broker may reply 0 for a group that committed nothing.
            zero_if_missing=False,
        )
        address = await self._reach.reader(queue.broker_name)
        try:
            reply = await self._reach.ask(address, header)
        except RemoteError as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return None
            raise
        return OffsetReply.decode(reply.fields).offset

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The queues of a topic that can be read."""
        route = await self._reach.route(topic)
        readers = readers_of(route)
        return sorted(
            MessageQueue(topic=topic, broker_name=part.broker_name, queue_id=number)
            for part in route.queues
            if part.broker_name in readers
            for number in range(part.read_queues)
        )

    async def preview(self, group: str, topic: str, timestamp_ms: int) -> list[OffsetMove]:
        """Return what a reset to a time would do, without doing it."""

        async def move(queue: MessageQueue) -> OffsetMove:
            first, committed, target = await asyncio.gather(
                self.first(queue),
                self.committed(group, queue),
                self.at_time(queue, timestamp_ms),
            )
            return OffsetMove(queue=queue, first=first, committed=committed, target=target)

        return list(await asyncio.gather(*map(move, await self.queues(topic))))

    async def reset(
        self, group: str, topic: str, timestamp_ms: int, *, forward: bool = True
    ) -> dict[MessageQueue, int]:
        """Set a group to a time in a topic; its running members resume there at once.

        Without `forward`, queues stay where the reset would skip messages or where nothing was
        committed yet. Returns the new offsets of the queues that were reset.
        """
        moved: dict[MessageQueue, int] = {}
        for name, address in (await self._reach.masters_of(topic)).items():
            requests = [_reset(group, topic, timestamp_ms, forward=True)]
            if not forward:
                moves = await self._moves_back(group, topic, name, timestamp_ms)
                requests = [_reset_queue(group, timestamp_ms, move) for move in moves]
            try:
                for request in requests:
                    reply = await self._reach.ask(address, request)
                    moved.update(java_json.decode(reply.body, QueueOffsetTable).offsets)
            except RemoteError as error:
                if error.code != ResponseCode.CONSUMER_NOT_ONLINE:
                    raise
                moved.update(
                    await self._reset_absent(group, topic, name, timestamp_ms, forward=forward)
                )
        return dict(sorted(moved.items()))

    async def set(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Commit offsets for a group that has no running members."""
        for queue, offset in offsets.items():
            await self._reach.calls.commit_offset(queue, group, offset, at_master=True)

    async def clone(
        self, source_group: str, target_group: str, topic: str, *, offline: bool = True
    ) -> None:
        """Copy the offsets of one group in a topic to another group."""
        header = CloneOffsets(
            source_group=source_group, target_group=target_group, topic=topic, offline=offline
        )
        await self._reach.ask_each((await self._reach.masters_of(topic)).values(), header)

    async def _reset_absent(
        self, group: str, topic: str, broker: str, timestamp_ms: int, *, forward: bool
    ) -> dict[MessageQueue, int]:
        """Commit for a group without members: RocketMQ 4 resets only through members."""
        if forward:
            moves = [
                move
                for move in await self.preview(group, topic, timestamp_ms)
                if move.queue.broker_name == broker
            ]
        else:
            moves = await self._moves_back(group, topic, broker, timestamp_ms)
        targets = {move.queue: move.target for move in moves}
        await self.set(group, targets)
        return targets

    async def _moves_back(
        self, group: str, topic: str, broker: str, timestamp_ms: int
    ) -> list[OffsetMove]:
        """The moves of a reset that skip no message, in the queues of one broker."""
        moves = await self.preview(group, topic, timestamp_ms)
        return [move for move in moves if move.queue.broker_name == broker and move.goes_back]


def _reset(group: str, topic: str, timestamp_ms: int, *, forward: bool) -> ResetOffsets:
    return ResetOffsets(topic=topic, group=group, timestamp_ms=Long(timestamp_ms), force=forward)


def _reset_queue(group: str, timestamp_ms: int, move: OffsetMove) -> ResetOffsets:
    # Compat: RocketMQ 5 resets the queue given and ignores `force`. RocketMQ 4 does the opposite, so
    # asking it queue by queue does the same as asking once.
    whole = _reset(group, move.queue.topic, timestamp_ms, forward=False)
    return replace(whole, queue_id=move.queue.queue_id, offset=Long(move.target))
