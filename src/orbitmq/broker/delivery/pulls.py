"""Pulls: checks permissions, and replies now, later, or after a read from disk.

Threads: the event loop's. Messages that are not in memory are read in a thread, since the disk may
be slow.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from orbitmq.broker.delivery.filters import Filter, make_filter
from orbitmq.broker.delivery.pull_replies import encode_pull_reply
from orbitmq.disk import off_loop
from orbitmq.errors import FilterSyntaxError, OrbitError, RequestRefusedError
from orbitmq.model.topics import Permission
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.command import RESPONSE_FLAG, Command
from orbitmq.protocol.requests.pulling import PullFlag, PullForbidden, PullMessages
from orbitmq.store.reading.queue_reader import Read, ReadStatus

if TYPE_CHECKING:
    from orbitmq.broker.config import BrokerConfig
    from orbitmq.broker.delivery.long_polls import LongPolls
    from orbitmq.broker.groups.committed_offsets import CommittedOffsets
    from orbitmq.broker.groups.group_table import GroupTable
    from orbitmq.broker.groups.members import Members
    from orbitmq.broker.statistics.counters import Counters
    from orbitmq.broker.topics.topic_table import TopicTable
    from orbitmq.clock import Clock
    from orbitmq.lifecycle import OwnedTasks
    from orbitmq.model.groups import GroupConfig
    from orbitmq.protocol.frame import Encoding
    from orbitmq.store.message_store import MessageStore
    from orbitmq.transport.connection import Connection

log = logging.getLogger(__name__)

# A client's call times out after 30 s; a held pull must be answered well before.
_HOLD_MS_MAX: Final = 25_000
# What a read from disk counts for in the bytes that a connection may have in flight.
_FAR_READ_BYTES: Final = 256 * 1024
# Perf: on Python 3.11 reading an enum member takes 0.1 µs, a module's name 0.01 µs.
_COMMIT: Final = int(PullFlag.COMMIT_OFFSET)
_SUSPEND: Final = int(PullFlag.SUSPEND)
_SUBSCRIPTION: Final = int(PullFlag.SUBSCRIPTION)
_FOUND: Final = ReadStatus.FOUND
_CODES: Final = {
    ReadStatus.FOUND: ResponseCode.SUCCESS,
    ReadStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    ReadStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    ReadStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    ReadStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    ReadStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
}
_NOT_FOUND: Final = ResponseCode.PULL_NOT_FOUND
_NO_QUEUE: Final = frozenset({ReadStatus.NO_MESSAGE_IN_QUEUE, ReadStatus.NO_MATCHED_LOGIC_QUEUE})
_OFFSET_RESET: Final = "OFFSET_RESET"


@dataclass(slots=True, kw_only=True)
class Pull:
    """One pull in progress."""

    connection: Connection
    opaque: int
    encoding: Encoding
    is_oneway: bool
    asked: PullMessages
    group: GroupConfig
    filter: Filter
    # The next offset to read; after the one asked for if the filter skipped messages.
    offset: int
    deadline_ms: float = 0.0

    @property
    def topic(self) -> str:
        """The topic asked for."""
        return self.asked.topic

    @property
    def queue_id(self) -> int:
        """The queue asked for."""
        return self.asked.queue_id


@dataclass(slots=True, eq=False, kw_only=True)
class Pulls:
    """Answers pulls."""

    config: Callable[[], BrokerConfig]
    store: MessageStore
    topics: TopicTable
    groups: GroupTable
    members: Members
    offsets: CommittedOffsets
    counters: Counters
    tasks: OwnedTasks
    clock: Clock
    # Set once, after construction: long polls call back `answer_held`.
    long_polls: LongPolls[Pull] = field(init=False, repr=False)

    def answer(
        self,
        connection: Connection,
        asked: PullMessages,
        *,
        opaque: int,
        encoding: Encoding,
        is_oneway: bool = False,
    ) -> bytes:
        """Answer a pull; empty if the reply comes later. Raises if it is refused."""
        pull = self._admit(connection, asked, opaque, encoding, is_oneway=is_oneway)
        member = self.members.client_id(connection, asked.consumer_group)
        # Compat: a negative offset means that nothing was consumed yet.
        if asked.system_flag & _COMMIT and asked.commit_offset >= 0:
            self.offsets.commit(
                asked.consumer_group,
                asked.topic,
                asked.queue_id,
                asked.commit_offset,
                end=self.store.end_of(asked.topic, asked.queue_id),
                sender=member,
            )
        if member is not None:
            self.offsets.note_pull(
                asked.consumer_group, asked.topic, asked.queue_id, member, asked.queue_offset
            )
        reset_offset = self.offsets.take_reset(asked.consumer_group, asked.topic, asked.queue_id)
        # A member that joined after the reset starts there already, and is not told: a client that
        # is told of a moved offset drops the queue for ten seconds and more.
        if reset_offset is not None and reset_offset != asked.queue_offset:
            return self._reset_reply(pull, reset_offset)
        if (asked.bulk_count or 0) > 0 and (charge := self._admit_bulk(pull)):
            self.tasks.start(
                self._answer_later(pull, charge, self._reply_in_bulk),
                name=f"bulk for {asked.consumer_group}",
            )
            return b""
        try:
            read = self._read(pull, may_wait=False)
        except BlockingIOError:
            return self._read_later(pull)
        return self._reply_or_hold(pull, read)

    def answer_held(self, pull: Pull, is_last: bool) -> bool:  # noqa: FBT001  # a callback
        """Answer a held pull; returns False if it should stay held."""
        reset_offset = self.offsets.take_reset(pull.group.name, pull.topic, pull.queue_id)
        if reset_offset is not None:
            pull.connection.write(self._reset_reply(pull, reset_offset))
            return True
        try:
            read = self._read(pull)
        except OrbitError as error:
            pull.connection.write(_failure(pull, error))
            return True
        if not is_last and read.status is not _FOUND:
            code = _code(pull, read)
            if code is ResponseCode.PULL_RETRY_IMMEDIATELY and read.next_offset >= read.end:
                pull.offset = read.next_offset
                return False
            if code is _NOT_FOUND:
                return False
            # There is more than one read covers, or the offset is out of bounds: the client has
            # to continue at once from the offset in the reply.
        pull.connection.write(self._reply(pull, read))
        return True

    # --- permissions --------------------------------------------------------------------------

    def _admit(
        self,
        connection: Connection,
        asked: PullMessages,
        opaque: int,
        encoding: Encoding,
        *,
        is_oneway: bool,
    ) -> Pull:
        config = self.config()
        if not config.permission & Permission.READ:
            raise _forbidden(
                PullForbidden.BROKER, f"the broker {config.broker_name} does not allow reading"
            )
        group = self.groups.find(asked.consumer_group)
        if group is None:
            raise RequestRefusedError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"the group {asked.consumer_group!r} does not exist on {config.broker_name}",
                hint="create it, or set autoCreateSubscriptionGroup",
            )
        if not group.allows_consuming:
            raise _forbidden(
                PullForbidden.GROUP, f"the group {asked.consumer_group!r} may not consume"
            )
        topic = self.topics.get(asked.topic)
        if topic is None:
            raise RequestRefusedError(
                ResponseCode.TOPIC_NOT_EXIST,
                f"the topic {asked.topic!r} does not exist on {config.broker_name}",
                hint="create it first",
            )
        if not topic.permission & Permission.READ:
            raise _forbidden(PullForbidden.TOPIC, f"the topic {asked.topic!r} cannot be read")
        if self.groups.forbidden_bits(asked.consumer_group, asked.topic) & Permission.READ:
            raise _forbidden(
                PullForbidden.SUBSCRIPTION,
                f"the group {asked.consumer_group!r} may not read the topic {asked.topic!r}",
            )
        if not 0 <= asked.queue_id < topic.read_queues:
            raise RequestRefusedError(
                ResponseCode.INVALID_PARAMETER,
                f"the topic {asked.topic!r} has no read queue {asked.queue_id}",
                hint=f"its read queues are 0 to {topic.read_queues - 1}",
            )
        return Pull(
            connection=connection,
            opaque=opaque,
            encoding=encoding,
            is_oneway=is_oneway,
            asked=asked,
            group=group,
            filter=self._filter(connection, asked, group),
            offset=asked.queue_offset,
        )

    def _filter(self, connection: Connection, asked: PullMessages, group: GroupConfig) -> Filter:
        if asked.system_flag & _SUBSCRIPTION:
            self.members.check_pull(connection, asked.consumer_group)
            expression, expression_type = asked.expression or "", asked.expression_type or ""
        else:
            subscription = self.members.subscription_for_pull(
                connection,
                asked.consumer_group,
                asked.topic,
                version=asked.subscription_version,
                allows_broadcast=group.allows_broadcast,
            )
            expression, expression_type = subscription.expression, subscription.expression_type
        try:
            chosen = make_filter(expression, expression_type)
        except FilterSyntaxError as error:
            raise RequestRefusedError(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from error
        if chosen.accepts_record is not None and not self.config().property_filter:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"The broker does not support consumer to filter message by {expression_type}",
                hint="set enablePropertyFilter=true",
            )
        return chosen

    # --- reading ------------------------------------------------------------------------------

    def _read(self, pull: Pull, *, may_wait: bool = True) -> Read:
        asked = pull.asked
        return self.store.read(
            asked.topic,
            asked.queue_id,
            pull.offset,
            asked.messages_max,
            tag_filter=pull.filter.accepts_tag,
            record_filter=pull.filter.accepts_record,
            may_wait=may_wait,
        )

    def _read_later(self, pull: Pull) -> bytes:
        charge = pull.connection.deferred.begin(_FAR_READ_BYTES)
        if not charge:
            return _write(
                pull,
                ResponseCode.SYSTEM_BUSY,
                "[OVERLOAD] too many reads of this connection wait for the disk; try again later",
            )
        self.tasks.start(
            self._answer_later(pull, charge, self._reply_from_disk),
            name=f"read for {pull.asked.consumer_group}",
        )
        return b""

    async def _answer_later(
        self, pull: Pull, charge: int, find_reply: Callable[[Pull], Awaitable[bytes]]
    ) -> None:
        try:
            reply = await find_reply(pull)
        except OrbitError as error:
            reply = _failure(pull, error)
        finally:
            pull.connection.deferred.end(charge)
        if reply:
            pull.connection.write(reply)

    async def _reply_from_disk(self, pull: Pull) -> bytes:
        started_ms = self.clock.monotonic_ms()
        read = await off_loop(self._read, pull)
        self.counters.read_waits.note(self.clock.monotonic_ms() - started_ms)
        return self._reply_or_hold(pull, read)

    # --- bulk reads ---------------------------------------------------------------------------

    def _admit_bulk(self, pull: Pull) -> int:
        """Start a bulk read; 0 if it has to be answered like an ordinary pull."""
        if not self.config().bulk_pull_count_max:
            return 0
        return pull.connection.deferred.begin(self._bulk_bytes(pull))

    def _bulk_bytes(self, pull: Pull) -> int:
        return min(max(pull.asked.bulk_bytes or 0, 1), self.config().bulk_pull_bytes_max)

    async def _reply_in_bulk(self, pull: Pull) -> bytes:
        # Copying and checking this much would block the loop, even if it is in memory.
        return self._reply(pull, await off_loop(self._read_bulk, pull))

    def _read_bulk(self, pull: Pull) -> Read:
        asked = pull.asked
        return self.store.read_bulk(
            asked.topic,
            asked.queue_id,
            pull.offset,
            min(asked.bulk_count or 0, self.config().bulk_pull_count_max),
            self._bulk_bytes(pull),
            tag_filter=pull.filter.accepts_tag,
            record_filter=pull.filter.accepts_record,
            with_bodies=asked.bulk_bodies != 0,
        )

    # --- replies ------------------------------------------------------------------------------

    def _reply_or_hold(self, pull: Pull, read: Read) -> bytes:
        if (
            read.status is not _FOUND
            and pull.asked.system_flag & _SUSPEND
            and _code(pull, read) is _NOT_FOUND
            and self._hold(pull)
        ):
            return b""
        return self._reply(pull, read)

    def _hold(self, pull: Pull) -> bool:
        config = self.config()
        hold_ms = pull.asked.suspend_timeout_ms if config.long_polling else config.short_poll_ms
        if hold_ms <= 0:
            return False
        pull.deadline_ms = self.clock.monotonic_ms() + min(hold_ms, _HOLD_MS_MAX)
        return self.long_polls.hold(pull)

    def _reply(self, pull: Pull, read: Read) -> bytes:
        if pull.is_oneway:
            return b""
        asked = pull.asked
        if read.records:
            counter = self.counters.read(asked.topic, asked.consumer_group)
            counter.add(len(read.records), read.record_bytes)
            self.counters.found_pulls += 1
        else:
            self.counters.missed_pulls += 1
            if self.long_polls.is_closed and asked.system_flag & _SUSPEND:
                # Compat: after an empty reply a client pulls again at once. If the connection
                # closes meanwhile, that pull is lost, and the client waits 30 s for its reply.
                # After a refusal it pauses first, and then finds the connection closed.
                return _write(
                    pull, ResponseCode.SYSTEM_BUSY, "[REJECTREQUEST] the broker is stopping"
                )
        return encode_pull_reply(
            _code(pull, read),
            read.status.value,
            opaque=pull.opaque,
            encoding=pull.encoding,
            next_offset=read.next_offset,
            start=read.start,
            end=read.end,
            broker_id=pull.group.broker_id,
            records=read.records,
            record_bytes=read.record_bytes,
        )

    def _reset_reply(self, pull: Pull, offset: int) -> bytes:
        if pull.is_oneway:
            return b""
        topic, queue_id = pull.topic, pull.queue_id
        return encode_pull_reply(
            ResponseCode.PULL_OFFSET_MOVED,
            _OFFSET_RESET,
            opaque=pull.opaque,
            encoding=pull.encoding,
            next_offset=offset,
            start=self.store.start_of(topic, queue_id),
            end=self.store.end_of(topic, queue_id),
            broker_id=pull.group.broker_id,
            records=[],
            record_bytes=0,
        )


def _code(pull: Pull, read: Read) -> ResponseCode:
    if read.status in _NO_QUEUE:
        # Compat: consumers of a queue without messages start at 0 and wait there.
        return ResponseCode.PULL_OFFSET_MOVED if pull.offset else _NOT_FOUND
    return _CODES[read.status]


def _forbidden(by: PullForbidden, message: str) -> RequestRefusedError:
    return RequestRefusedError(
        ResponseCode.NO_PERMISSION, message, fields={"forbiddenType": str(int(by))}
    )


def _failure(pull: Pull, error: OrbitError) -> bytes:
    """Log a pull that failed after it was admitted, and make its reply."""
    log.error(
        "read failed group=%s topic=%s queue=%d offset=%d reason=%s",
        pull.asked.consumer_group,
        pull.topic,
        pull.queue_id,
        pull.offset,
        error,
    )
    return _write(pull, ResponseCode.SYSTEM_ERROR, str(error))


def _write(pull: Pull, code: ResponseCode, remark: str) -> bytes:
    if pull.is_oneway:
        return b""
    return Command(
        code=code,
        remark=remark,
        opaque=pull.opaque,
        flag=RESPONSE_FLAG,
        encoding=pull.encoding,
    ).encode()
