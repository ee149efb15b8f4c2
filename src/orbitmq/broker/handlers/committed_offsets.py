"""Committed offsets: get, set, reset to a time, copy between groups."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

from orbitmq import java_json
from orbitmq.broker.groups.committed_offsets import Commit
from orbitmq.broker.groups.stale_positions import GroupQueue
from orbitmq.disk import off_loop
from orbitmq.errors import RequestRefusedError
from orbitmq.java_json import ObjectKeyed
from orbitmq.model.names import is_broker_only_group
from orbitmq.model.queues import MessageQueue
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.headers import Long
from orbitmq.protocol.languages import Language
from orbitmq.protocol.requests.offsets import (
    CloneOffsets,
    CommitOffset,
    GetCommittedOffset,
    OffsetReply,
    QueueOffsetTable,
    ResetOffsets,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.broker.config import BrokerConfig
    from orbitmq.broker.groups.committed_offsets import CommittedOffsets
    from orbitmq.broker.groups.group_table import GroupTable
    from orbitmq.broker.groups.members import Members
    from orbitmq.broker.groups.stale_positions import StalePositions
    from orbitmq.broker.topics.topic_table import TopicTable
    from orbitmq.protocol.command import Command
    from orbitmq.store.message_store import MessageStore
    from orbitmq.transport.connection import Connection
    from orbitmq.transport.request_loop import Handler

log = logging.getLogger(__name__)

_LATEST: Final = -1
# Compat: Go's clients commit this for a queue in which they consumed nothing.
_NOTHING_CONSUMED: Final = -1
_ALL_QUEUES: Final = -1
_ANY: Final = 2**63 - 1


@dataclass(slots=True, eq=False, kw_only=True)
class CommittedOffsetRequests:
    """Reads and changes committed offsets."""

    config: Callable[[], BrokerConfig]
    store: MessageStore
    topics: TopicTable
    groups: GroupTable
    members: Members
    offsets: CommittedOffsets
    positions: StalePositions
    on_reset: Callable[[Iterable[MessageQueue]], None]
    is_slave: Callable[[], bool] = lambda: False

    def by_code(self) -> Mapping[int, Handler]:
        """The handlers by request code."""
        return {
            RequestCode.QUERY_CONSUMER_OFFSET: self.query,
            RequestCode.UPDATE_CONSUMER_OFFSET: self.commit,
            RequestCode.GET_ALL_CONSUMER_OFFSET: self.list_all,
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: self.reset,
            RequestCode.CLONE_GROUP_OFFSET: self.clone,
        }

    def query(self, _: Connection, request: Command) -> Command:
        """Return the committed offset of a group in a queue."""
        asked = GetCommittedOffset.decode(request.fields)
        offset = self.offsets.get(asked.consumer_group, asked.topic, asked.queue_id)
        if offset is None and asked.zero_if_missing is not False and self._has_recent_start(asked):
            # Compat: regardless of where the consumers of a new group want to start.
            offset = 0
        if offset is None:
            raise RequestRefusedError(
                ResponseCode.QUERY_NOT_FOUND,
                "Not found, maybe this group consumer boot first",
            )
        return request.reply(OffsetReply(offset=Long(offset)))

    def _has_recent_start(self, asked: GetCommittedOffset) -> bool:
        """Whether a queue still has its first message, and in memory, or is still to get it.

        Without an answer for an empty queue a client would ask for its end next, and skip a first
        message that arrives in between.
        """
        topic, queue_id = asked.topic, asked.queue_id
        if self.store.start_of(topic, queue_id):
            return False
        if self.store.end_of(topic, queue_id):
            return self.store.is_in_memory(topic, queue_id, 0)
        config = self.topics.get(topic)
        return config is not None and 0 <= queue_id < config.read_queues

    def commit(self, connection: Connection, request: Command) -> Command:
        """Commit the offset of a group in a queue."""
        asked = CommitOffset.decode(request.fields)
        _check_may_set(asked.consumer_group)
        if self.groups.find(asked.consumer_group) is None:
            self.groups.require(asked.consumer_group)
        topic = self.topics.require(asked.topic)
        end = self.store.end_of(asked.topic, asked.queue_id)
        # A queue that was taken from the topic's consumers may still be committed: it can come back.
        queues = max(topic.read_queues, topic.write_queues)
        if not (0 <= asked.queue_id < queues or end):
            raise RequestRefusedError(
                ResponseCode.INVALID_PARAMETER,
                f"the topic {asked.topic!r} has no queue {asked.queue_id}",
                hint=f"its queues are 0 to {queues - 1}",
            )
        if asked.commit_offset == _NOTHING_CONSUMED:
            return request.reply()
        if asked.only_forward:
            committed = self.offsets.get(asked.consumer_group, asked.topic, asked.queue_id)
            if committed is not None and asked.commit_offset <= committed:
                return request.reply()
        sender = self.members.client_id(connection, asked.consumer_group)
        if sender is not None and self.positions.are_checked:
            self._check_position(asked, sender)
        outcome = self.offsets.commit(
            asked.consumer_group,
            asked.topic,
            asked.queue_id,
            asked.commit_offset,
            # A slave may not have yet what was consumed at its master.
            end=_ANY if self.is_slave() else end,
            sender=sender,
        )
        if outcome is Commit.ABOVE_END:
            raise self._out_of_range(asked.topic, asked.queue_id, asked.commit_offset)
        return request.reply()

    def _check_position(self, asked: CommitOffset, sender: str) -> None:
        queue = GroupQueue(asked.consumer_group, asked.topic, asked.queue_id)
        if not self.members.subscribes(queue.group, queue.topic):
            # It reads nothing: it copies the progress of another reader.
            return
        if self.positions.refuses(queue, sender, asked.commit_offset):
            raise RequestRefusedError(
                ResponseCode.INVALID_PARAMETER,
                f"{asked.commit_offset} of queue {asked.queue_id} of the topic {asked.topic!r} is "
                "above what this broker had when it was promoted, and the member has not read on "
                "here yet",
                hint="pull from the queue first, and commit what that returns",
            )

    def _out_of_range(self, topic: str, queue_id: int, offset: int) -> RequestRefusedError:
        start, end = self.store.start_of(topic, queue_id), self.store.end_of(topic, queue_id)
        return RequestRefusedError(
            ResponseCode.INVALID_PARAMETER,
            f"{offset} is outside of queue {queue_id} of the topic {topic!r}",
            hint=f"its offsets go from {start} to {end}",
        )

    async def list_all(self, _: Connection, request: Command) -> Command:
        """Return all committed offsets, as slaves read them."""
        table = {"dataVersion": self.offsets.data_version, "offsetTable": self.offsets.table()}
        return request.reply(body=await off_loop(java_json.encode, table))

    async def reset(self, connection: Connection, request: Command) -> Command:
        """Move a group to a time or an offset; its members learn of it by their next pulls."""
        asked = ResetOffsets.decode(request.fields)
        _check_may_set(asked.group)
        topic = self.topics.require(asked.topic)
        self.groups.require(asked.group)
        queue_ids = range(topic.read_queues) if asked.queue_id == _ALL_QUEUES else [asked.queue_id]
        if not _ALL_QUEUES <= asked.queue_id < topic.read_queues:
            raise RequestRefusedError(
                ResponseCode.INVALID_PARAMETER,
                f"the topic {asked.topic!r} has no read queue {asked.queue_id}",
                hint=f"its read queues are 0 to {topic.read_queues - 1}",
            )
        targets = await off_loop(self._targets, asked, queue_ids)
        for queue_id, offset in targets.items():
            self.offsets.reset(asked.group, asked.topic, queue_id, offset)
            self._allow(asked.group, asked.topic, queue_id, offset)
        log.info(
            "offsets reset group=%s topic=%s queues=%d to=%s peer=%s",
            asked.group,
            asked.topic,
            len(targets),
            ",".join(f"{queue_id}:{offset}" for queue_id, offset in islice(targets.items(), 16)),
            connection.address,
        )
        broker_name = self.config().broker_name
        offsets = {
            MessageQueue(topic=asked.topic, broker_name=broker_name, queue_id=queue_id): offset
            for queue_id, offset in targets.items()
        }
        self.on_reset(offsets)
        result = QueueOffsetTable(offsets=ObjectKeyed(offsets))
        body = result.as_list() if request.language is Language.CPP else result
        return request.reply(body=await off_loop(java_json.encode, body))

    def _targets(self, asked: ResetOffsets, queue_ids: range | list[int]) -> dict[int, int]:
        targets: dict[int, int] = {}
        for queue_id in queue_ids:
            start = self.store.start_of(asked.topic, queue_id)
            end = self.store.end_of(asked.topic, queue_id)
            target: int
            if asked.offset is not None and asked.offset >= 0:
                target = asked.offset
            elif asked.timestamp_ms == _LATEST:
                target = end
            else:
                target = self.store.offset_at(asked.topic, queue_id, asked.timestamp_ms)
            targets[queue_id] = max(start, min(target, end))
        wanted = asked.offset
        if wanted is not None and wanted >= 0 and wanted not in targets.values():
            # In no queue: the operator had another topic or offset in mind.
            nearest = min(targets, key=lambda queue_id: abs(targets[queue_id] - wanted))
            raise self._out_of_range(asked.topic, nearest, wanted)
        return targets

    def clone(self, _: Connection, request: Command) -> Command:
        """Copy the offsets of one group to another, for one topic or all."""
        asked = CloneOffsets.decode(request.fields)
        _check_may_set(asked.target_group)
        if self.groups.find(asked.target_group) is None:
            self.groups.require(asked.target_group)
        topics = [asked.topic] if asked.topic else self.offsets.topics_of(asked.source_group)
        for topic in topics:
            self.topics.require(topic)
            self.offsets.clone(asked.source_group, asked.target_group, topic)
            for queue_id, offset in self.offsets.queues(asked.target_group, topic).items():
                self._allow(asked.target_group, topic, queue_id, offset)
        return request.reply()

    def _allow(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Let consumers start at an offset that an operator has set."""
        if self.positions.are_checked:
            self.positions.allow(GroupQueue(group, topic, queue_id), offset)


def _check_may_set(group: str) -> None:
    """Refuse a group whose offsets the broker relies on: from them it finds open transactions."""
    if is_broker_only_group(group):
        raise RequestRefusedError(
            ResponseCode.NO_PERMISSION,
            f"offsets of the group {group!r} are set by the broker only",
            hint="name a group of your own",
        )
