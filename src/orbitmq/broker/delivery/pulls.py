"""Pulls: checks permissions, and replies now, later, or after a read from disk.

A slave serves consumers that lag, and all of them while its master is gone. Otherwise it leads them
back to the master. It may lag itself, so an offset outside its queues is no reason to move anybody.

Threads: the event loop's. Messages that are not in memory are read in a thread, since the disk may
be slow.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from orbitmq.broker.delivery.filters import Filter, is_cached, make_filter
from orbitmq.broker.delivery.pull import Pull
from orbitmq.broker.delivery.pull_replies import encode_pull_reply
from orbitmq.broker.delivery.rounds import SLICE_MS
from orbitmq.broker.groups.stale_positions import GroupQueue
from orbitmq.disk import off_loop
from orbitmq.errors import FilterSyntaxError, OrbitError, RequestRefusedError
from orbitmq.model.names import is_broker_only_group
from orbitmq.model.routes import MASTER_ID
from orbitmq.model.topics import Permission
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.command import RESPONSE_FLAG, Command
from orbitmq.protocol.requests.pulling import PullFlag, PullForbidden, PullMessages
from orbitmq.store.reading.queue_reader import Read, ReadStatus

if TYPE_CHECKING:
    from orbitmq.broker.config import BrokerConfig
    from orbitmq.broker.delivery.long_polls import LongPolls
    from orbitmq.broker.delivery.rounds import Rounds
    from orbitmq.broker.groups.committed_offsets import CommittedOffsets
    from orbitmq.broker.groups.group_table import GroupTable
    from orbitmq.broker.groups.members import Members
    from orbitmq.broker.groups.stale_positions import StalePositions
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
HOLD_MS_MAX: Final = 25_000
# What a read from disk counts for in the bytes that a connection may have in flight.
_FAR_READ_BYTES: Final = 256 * 1024
# A filter as long as this compiles in about half a millisecond.
_SHORT_EXPRESSION: Final = 200
# How long a thread evaluates a filter for one pull; the reply then says where to continue.
_THREAD_SLICE_MS: Final = 20.0
# Perf: on Python 3.11 reading an enum member takes 0.1 µs, a module's name 0.01 µs.
_COMMIT: Final = int(PullFlag.COMMIT_OFFSET)
_SUBSCRIPTION: Final = int(PullFlag.SUBSCRIPTION)
_CLASS_FILTER: Final = int(PullFlag.CLASS_FILTER)
_FOUND: Final = ReadStatus.FOUND
_RETRY: Final = ResponseCode.PULL_RETRY_IMMEDIATELY
_MOVED: Final = ResponseCode.PULL_OFFSET_MOVED
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
_ANY: Final = 2**63 - 1


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
    # Pulls with filters on records take turns, if the loop has no time for them at once.
    rounds: Rounds
    clock: Clock
    positions: StalePositions
    # Whether this broker is a slave now, and whether the master of its group can be reached.
    is_slave: Callable[[], bool] = lambda: False
    master_is_alive: Callable[[], bool] = lambda: True
    # One thread at a time evaluates filters: more would only take the loop's time.
    thread_turn: asyncio.Lock = field(default_factory=asyncio.Lock)
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
        if self.positions.are_checked:
            start = self._sent_back(asked, member, connection.address)
            if start is not None:
                return self._reset_reply(pull, start)
        # Compat: a negative offset means that nothing was consumed yet.
        if asked.system_flag & _COMMIT and asked.commit_offset >= 0:
            if is_broker_only_group(asked.consumer_group):
                raise _forbidden(
                    PullForbidden.GROUP,
                    f"offsets of the group {asked.consumer_group!r} are set by the broker only",
                )
            self.offsets.commit(
                asked.consumer_group,
                asked.topic,
                asked.queue_id,
                asked.commit_offset,
                # A slave may not have yet what was consumed at its master.
                end=_ANY if self.is_slave() else self.store.end_of(asked.topic, asked.queue_id),
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
        if pull.bulk_count and (charge := self._admit_bulk(pull)):
            self.tasks.start(
                self._answer_later(pull, charge, self._reply_in_bulk),
                name=f"bulk for {pull.group.name}",
            )
            return b""
        if pull.filter.accepts_record is None or self.rounds.has_time:
            return self._answer_now(pull)
        if not self._charge(pull):
            return _busy(pull)
        self.rounds.add(connection, partial(self._answer_in_turn, pull))
        return b""

    def _sent_back(self, asked: PullMessages, member: str | None, address: str) -> int | None:
        """Where a consumer has to start that may have read what a promotion lost."""
        queue = GroupQueue(asked.consumer_group, asked.topic, asked.queue_id)
        start = self.positions.sent_back(
            queue, member, address, asked.queue_offset, asked.system_flag
        )
        if start is not None:
            start = min(start, self.store.end_of(asked.topic, asked.queue_id))
            return max(start, self.store.start_of(asked.topic, asked.queue_id))
        if asked.system_flag & _COMMIT:
            self.positions.allow(queue, asked.commit_offset)
        return None

    def _answer_now(self, pull: Pull) -> bytes:
        try:
            read = self._read_on_loop(pull, may_wait=False)
        except BlockingIOError:
            return self._read_later(pull)
        return self._reply_or_hold(pull, read)

    def _answer_in_turn(self, pull: Pull) -> None:
        self.release(pull)
        if pull.connection.closed:
            return
        try:
            reply = self._answer_now(pull)
        except OrbitError as error:
            reply = _failure(pull, error)
        if reply:
            pull.connection.write(reply)

    def _charge(self, pull: Pull) -> bool:
        """Count a pull that waits as a request in flight; returns False if there are too many."""
        pull.charge = pull.connection.deferred.begin(pull.filter.kept_bytes)
        return pull.charge > 0

    def release(self, pull: Pull) -> None:
        """Stop counting a pull that waited."""
        pull.connection.deferred.end(pull.charge)
        pull.charge = 0

    def answer_held(self, pull: Pull, is_last: bool) -> bool:  # noqa: FBT001  # a callback
        """Answer a held pull; returns False if it should stay held."""
        reset_offset = self.offsets.take_reset(pull.group.name, pull.topic, pull.queue_id)
        if reset_offset is not None:
            pull.connection.write(self._reset_reply(pull, reset_offset))
            return True
        try:
            read = self._read_on_loop(pull, may_wait=True)
        except OrbitError as error:
            pull.connection.write(_failure(pull, error))
            return True
        if not is_last and read.status is not _FOUND:
            if self._has_to_wait(pull, read):
                return False
            if _code(pull, read) is _RETRY and read.next_offset >= read.end:
                pull.offset = read.next_offset
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
        if not config.slave_read and self.is_slave():
            raise RequestRefusedError(
                ResponseCode.SYSTEM_BUSY,
                f"[REJECTREQUEST] {config.broker_name} {config.broker_id} is a slave, and it does not "
                "allow reading",
                hint="set slaveReadEnable=true",
            )
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
            group=group,
            topic=topic.name,
            queue_id=asked.queue_id,
            offset=asked.queue_offset,
            count_max=asked.messages_max,
            system_flag=asked.system_flag,
            hold_ms=asked.suspend_timeout_ms,
            bulk_count=max(asked.bulk_count or 0, 0),
            bulk_bytes=max(asked.bulk_bytes or 0, 1),
            with_bodies=asked.bulk_bodies != 0,
            filter=self._filter(connection, asked, group),
        )

    def _filter(self, connection: Connection, asked: PullMessages, group: GroupConfig) -> Filter:
        if asked.system_flag & _CLASS_FILTER:
            raise _filtered_elsewhere(asked.consumer_group, asked.topic)
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
            if subscription.class_filter:
                raise _filtered_elsewhere(asked.consumer_group, asked.topic)
            expression, expression_type = subscription.expression, subscription.expression_type
        if len(expression) > _SHORT_EXPRESSION and not is_cached(expression, expression_type):
            connection.require_slow_turn()
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

    def _read_on_loop(self, pull: Pull, *, may_wait: bool) -> Read:
        if pull.filter.accepts_record is None:
            return self._read(pull, may_wait=may_wait)
        began_ms = self.clock.monotonic_ms()
        try:
            return self._read(pull, may_wait=may_wait, time_ms=SLICE_MS)
        finally:
            self.rounds.spend(self.clock.monotonic_ms() - began_ms)

    def _read(
        self, pull: Pull, *, may_wait: bool = True, time_ms: float = _THREAD_SLICE_MS
    ) -> Read:
        return self.store.read(
            pull.topic,
            pull.queue_id,
            pull.offset,
            pull.count_max,
            tag_filter=pull.filter.accepts_tag,
            record_filter=pull.filter.record_filter(self.clock, time_ms),
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
            name=f"read for {pull.group.name}",
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
        read = await self._in_thread(self._read, pull)
        self.counters.read_waits.note(self.clock.monotonic_ms() - started_ms)
        return self._reply_or_hold(pull, read)

    async def _in_thread(self, read: Callable[[Pull], Read], pull: Pull) -> Read:
        if pull.filter.accepts_record is None:
            return await off_loop(read, pull)
        async with self.thread_turn:
            return await off_loop(read, pull)

    # --- bulk reads ---------------------------------------------------------------------------

    def _admit_bulk(self, pull: Pull) -> int:
        """Start a bulk read; 0 if it has to be answered like an ordinary pull."""
        if not self.config().bulk_pull_count_max:
            return 0
        return pull.connection.deferred.begin(self._bulk_bytes(pull))

    def _bulk_bytes(self, pull: Pull) -> int:
        return min(pull.bulk_bytes, self.config().bulk_pull_bytes_max)

    async def _reply_in_bulk(self, pull: Pull) -> bytes:
        # Copying and checking this much would block the loop, even if it is in memory.
        return self._reply(pull, await self._in_thread(self._read_bulk, pull))

    def _read_bulk(self, pull: Pull) -> Read:
        return self.store.read_bulk(
            pull.topic,
            pull.queue_id,
            pull.offset,
            min(pull.bulk_count, self.config().bulk_pull_count_max),
            self._bulk_bytes(pull),
            tag_filter=pull.filter.accepts_tag,
            record_filter=pull.filter.record_filter(self.clock, _THREAD_SLICE_MS),
            with_bodies=pull.with_bodies,
        )

    # --- replies ------------------------------------------------------------------------------

    def _reply_or_hold(self, pull: Pull, read: Read) -> bytes:
        if (
            read.status is not _FOUND
            and pull.may_be_held
            and self._has_to_wait(pull, read)
            and (hold_ms := self._hold_ms(pull, read)) > 0
        ):
            if not self._charge(pull):
                return _busy(pull)
            pull.deadline_ms = self.clock.monotonic_ms() + min(hold_ms, HOLD_MS_MAX)
            if self.long_polls.hold(pull):
                return b""
            self.release(pull)
        return self._reply(pull, read)

    def _has_to_wait(self, pull: Pull, read: Read) -> bool:
        """Whether a pull can get nothing before something new is stored."""
        code = _code(pull, read)
        return code is _NOT_FOUND or (code is _MOVED and self._keeps_offsets())

    def _keeps_offsets(self) -> bool:
        """Whether an offset outside the queue is left alone: the master may well have it."""
        return self.is_slave() and not self.config().offset_check_in_slave

    def _leads_to_master(self, read: Read) -> bool:
        """Whether the consumer should go on at the master."""
        return self.is_slave() and not read.far_behind and self.master_is_alive()

    def _hold_ms(self, pull: Pull, read: Read) -> int:
        config = self.config()
        if not config.long_polling:
            return config.short_poll_ms
        # Compat: RocketMQ's slaves answer at once in this case. A client that does not know the
        # address of the master yet would then ask again and again.
        return (
            min(pull.hold_ms, config.short_poll_ms) if self._leads_to_master(read) else pull.hold_ms
        )

    def _reply(self, pull: Pull, read: Read) -> bytes:
        if pull.is_oneway:
            return b""
        if read.records:
            counter = self.counters.read(pull.topic, pull.group.name)
            counter.add(len(read.records), read.record_bytes)
            self.counters.found_pulls += 1
        else:
            self.counters.missed_pulls += 1
            if self.long_polls.is_closed and pull.may_be_held:
                # Compat: after an empty reply a client pulls again at once. If the connection
                # closes meanwhile, that pull is lost, and the client waits 30 s for its reply.
                # After a refusal it pauses first, and then finds the connection closed.
                return _write(
                    pull, ResponseCode.SYSTEM_BUSY, "[REJECTREQUEST] the broker is stopping"
                )
        code, next_offset = _code(pull, read), int(read.next_offset)
        if code is not ResponseCode.SUCCESS and self.is_slave():
            code, next_offset = self._slave_outcome(pull, read, code)
        return encode_pull_reply(
            code,
            read.status.value,
            opaque=pull.opaque,
            encoding=pull.encoding,
            next_offset=next_offset,
            start=read.start,
            end=read.end,
            broker_id=self._suggested_broker(pull, read),
            records=read.records,
            record_bytes=read.record_bytes,
        )

    def _slave_outcome(
        self, pull: Pull, read: Read, code: ResponseCode
    ) -> tuple[ResponseCode, int]:
        """The code and next offset of a reply without messages."""
        is_redirected = self._leads_to_master(read)
        if code is _MOVED:
            if is_redirected or self._keeps_offsets():
                return _RETRY, pull.offset
            return code, read.next_offset
        return _RETRY if is_redirected else code, read.next_offset

    def _suggested_broker(self, pull: Pull, read: Read) -> int:
        """The id of the broker that the consumer should ask next."""
        if not self.config().slave_read or self._leads_to_master(read):
            return MASTER_ID
        return pull.group.slow_reader_broker_id if read.far_behind else pull.group.broker_id

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


def _filtered_elsewhere(group: str, topic: str) -> RequestRefusedError:
    # RocketMQ's broker would send every message, as if there were no filter.
    return RequestRefusedError(
        ResponseCode.SYSTEM_ERROR,
        f"group {group!r} filters topic {topic!r} by a class, which only filter servers do",
        hint="pull from a filter server of the topic's route; orbitmq filterserver runs one",
    )


def _failure(pull: Pull, error: OrbitError) -> bytes:
    """Log a pull that failed after it was admitted, and make its reply."""
    log.error(
        "read failed group=%s topic=%s queue=%d offset=%d reason=%s",
        pull.group.name,
        pull.topic,
        pull.queue_id,
        pull.offset,
        error,
    )
    return _write(pull, ResponseCode.SYSTEM_ERROR, str(error))


def _busy(pull: Pull) -> bytes:
    return _write(
        pull,
        ResponseCode.SYSTEM_BUSY,
        "[OVERLOAD] too many pulls of this connection are waiting; try again later",
    )


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
