"""Administering offsets: bounds of queues, what groups committed, resets."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from orbitmq import java_json
from orbitmq.client.aio.admin.reach import addresses_of
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

# What a reset takes for "behind the last message".
END_OF_QUEUE: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetMove:
    """What a reset would do, or did, to a group in one queue."""

    queue: MessageQueue
    # Where the queue begins.
    first: int
    committed: int | None
    target: int

    @property
    def consumed_again(self) -> int:
        """How many messages the group would get a second time."""
        return max(0, (self.committed or 0) - self.target)

    @property
    def skipped(self) -> int:
        """How many messages the group would never get."""
        return max(0, self.target - max(self.first, self.committed or 0))

    @property
    def goes_back(self) -> bool:
        """Whether no message would be skipped; never where nothing was committed yet."""
        return self.committed is not None and not self.skipped


class Offsets:
    """Reads and moves offsets of groups."""

    def __init__(self, reach: Reach) -> None:
        self._reach = reach

    async def first(self, queue: MessageQueue) -> int:
        """Where a queue begins."""
        return await self._reach.calls.min_offset(queue)

    async def end(self, queue: MessageQueue) -> int:
        """Where a queue ends: the offset that its next message will have."""
        return await self._reach.calls.max_offset(queue)

    async def at_time(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The offset of the first message stored at a time or later."""
        if timestamp_ms == END_OF_QUEUE:
            return await self.end(queue)
        return await self._reach.calls.offset_at(queue, timestamp_ms)

    async def committed(self, group: str, queue: MessageQueue) -> int | None:
        """How far a group has come in a queue; None when it committed nothing."""
        header = GetCommittedOffset(
            consumer_group=group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            # Compat: left out, a Java broker may answer 0 for a group that committed nothing.
            zero_if_missing=False,
        )
        address = await self._reach.broker(queue.broker_name)
        try:
            reply = await self._reach.ask(address, header)
        except RemoteError as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return None
            raise
        return OffsetReply.decode(reply.fields).offset

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The queues of a topic that can be read."""
        route = await self._reach.name_servers.route(topic)
        masters = addresses_of(route)
        return sorted(
            MessageQueue(topic=topic, broker_name=part.broker_name, queue_id=number)
            for part in route.queues
            if part.broker_name in masters
            for number in range(part.read_queues)
        )

    async def preview(self, group: str, topic: str, timestamp_ms: int) -> list[OffsetMove]:
        """Say what a reset to a time would do, without doing it."""

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
        """Set a group to a time in a topic; its running members go on from there at once.

        Without `forward`, queues where that would skip messages, or where nothing was committed
        yet, stay as they are. Returns the queues that were moved.
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
        """Commit offsets for a group that nobody consumes for at present."""
        for queue, offset in offsets.items():
            await self._reach.calls.commit_offset(queue, group, offset, oneway=False)

    async def clone(
        self, source_group: str, target_group: str, topic: str, *, offline: bool = True
    ) -> None:
        """Set a group to where another one is in a topic."""
        header = CloneOffsets(
            source_group=source_group, target_group=target_group, topic=topic, offline=offline
        )
        await self._reach.ask_each((await self._reach.masters_of(topic)).values(), header)

    async def _reset_absent(
        self, group: str, topic: str, broker: str, timestamp_ms: int, *, forward: bool
    ) -> dict[MessageQueue, int]:
        """Commit for a group without members: RocketMQ 4 resets a group through its members only."""
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
        """The queues of a broker in which a reset would go back."""
        moves = await self.preview(group, topic, timestamp_ms)
        return [move for move in moves if move.queue.broker_name == broker and move.goes_back]


def _reset(group: str, topic: str, timestamp_ms: int, *, forward: bool) -> ResetOffsets:
    return ResetOffsets(topic=topic, group=group, timestamp_ms=Long(timestamp_ms), force=forward)


def _reset_queue(group: str, timestamp_ms: int, move: OffsetMove) -> ResetOffsets:
    # Compat: RocketMQ 5 takes the queue and ignores `force`; RocketMQ 4 does the opposite, so that
    # asking it for one queue after the other is the same as asking once.
    whole = _reset(group, move.queue.topic, timestamp_ms, forward=False)
    return replace(whole, queue_id=move.queue.queue_id, offset=Long(move.target))
