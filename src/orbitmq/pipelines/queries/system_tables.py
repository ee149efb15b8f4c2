"""System tables: what an operator asks a cluster for, as tables of a query.

Each is read when a query that names it runs, by the admin client and with its rights. A table has
at most `ROWS_MAX` rows; what is left out is said in a note.

| table | a row is |
|---|---|
| system.topics | a topic on a broker |
| system.groups | a consumer group |
| system.lag | a queue that a group has committed an offset for |
| system.dlq | a dead letter |
| system.delayed | a message that is not due yet |
| system.trace | a step of a message that its clients traced |
"""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from orbitmq.client.aio.admin.groups import lag_of
from orbitmq.client.core.dead_letters import DeadLetter
from orbitmq.client.core.tracing.journeys import Report, journeys_of
from orbitmq.client.core.tracing.trace_records import decode_records
from orbitmq.errors import ProtocolError, RemoteError, RouteNotFoundError
from orbitmq.model.names import DEAD_LETTER_PREFIX, TRACE_TOPIC
from orbitmq.model.topics import permission_text
from orbitmq.protocol.codes import ResponseCode

if TYPE_CHECKING:
    from orbitmq.client.aio.admin import Admin
    from orbitmq.client.aio.admin.groups import GroupProgress
    from orbitmq.client.aio.admin.messages import Messages
    from orbitmq.client.core.consuming.received_message import ReceivedMessage
    from orbitmq.protocol.requests.clients import ConsumerConnections

T = TypeVar("T")
R = TypeVar("R")

ROWS_MAX: Final = 100_000
# Dead letters and trace messages are read whole, and the newest of them only.
MESSAGES_MAX: Final = 10_000
# Topics whose messages are counted, by a request for each.
COUNTED_MAX: Final = 10_000
_REQUESTS_MAX: Final = 16
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class SystemColumn(NamedTuple):
    """A column, with its type in SQL."""

    name: str
    type: str
    meaning: str


@dataclass(slots=True)
class Reading:
    """Rows that are being read, and what is left out of them."""

    # Whether the query may need a column of this name.
    needs: Callable[[str], bool]
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, *row: Any) -> bool:
        """Add a row; False once there is no room for another."""
        self.rows.append(row)
        return len(self.rows) < ROWS_MAX

    def note(self, text: str) -> None:
        """Say what is left out, once."""
        if text not in self.notes:
            self.notes.append(text)


@dataclass(frozen=True, slots=True)
class SystemTable:
    """A table, how it is read, and what its columns mean."""

    name: str
    columns: tuple[SystemColumn, ...]
    fill: Callable[[Admin, Reading], Awaitable[None]]

    async def read(self, admin: Admin, needs: Callable[[str], bool]) -> Reading:
        """Read its rows now."""
        reading = Reading(needs)
        await self.fill(admin, reading)
        if len(reading.rows) >= ROWS_MAX:
            reading.note(f"{self.name} is cut off after {ROWS_MAX} rows")
        return reading


async def _topics(admin: Admin, reading: Reading) -> None:
    brokers = await admin.brokers.addresses()
    configs = {broker: await admin.topics.configs(address) for broker, address in brokers.items()}
    sizes: dict[tuple[str, str], tuple[int, int]] = {}
    if reading.needs("messages") or reading.needs("storeTimestamp"):
        sizes = await _sizes(admin, {name for found in configs.values() for name in found}, reading)
    for broker, found in configs.items():
        for name, config in sorted(found.items()):
            size = sizes.get((name, broker))
            if not reading.add(
                name,
                broker,
                config.read_queues,
                config.write_queues,
                permission_text(config.permission),
                config.order,
                None if size is None else size[0],
                None if size is None else moment(size[1]),
            ):
                return


async def _sizes(
    admin: Admin, topics: Iterable[str], reading: Reading
) -> dict[tuple[str, str], tuple[int, int]]:
    """By topic and broker, how many messages there are, and when the newest was stored."""
    names = sorted(topics)
    if len(names) > COUNTED_MAX:
        reading.note(f"messages of system.topics are counted for {COUNTED_MAX} topics only")
        names = names[:COUNTED_MAX]
    sizes: dict[tuple[str, str], tuple[int, int]] = {}
    for name, bounds in zip(names, await _all(admin.topics.bounds, names), strict=True):
        for queue, one in (bounds or {}).items():
            count, last_ms = sizes.get((name, queue.broker_name), (0, 0))
            sizes[name, queue.broker_name] = (
                count + one.max_offset - one.min_offset,
                max(last_ms, one.last_update_ms),
            )
    return sizes


async def _groups(admin: Admin, reading: Reading) -> None:
    configs = list((await admin.groups.configs()).values())[:ROWS_MAX]
    names = [config.name for config in configs]
    progress: list[GroupProgress | None] = [None] * len(names)
    connections: list[ConsumerConnections | None] = [None] * len(names)
    if reading.needs("lag") or reading.needs("consumedPerSecond"):
        progress = await _all(admin.groups.progress, names)
    if reading.needs("members"):
        connections = await _all(admin.groups.connections, names)
    for config, done, connected in zip(configs, progress, connections, strict=True):
        reading.add(
            config.name,
            None if connected is None else len(connected.connections),
            None if done is None else done.lag,
            None if done is None else done.consumed_per_second,
            config.allows_consuming,
            config.allows_broadcast,
            config.consumes_in_order,
            config.retries_max,
        )


async def _lag(admin: Admin, reading: Reading) -> None:
    names = list(await admin.groups.configs())
    for name, progress in zip(names, await _all(admin.groups.progress, names), strict=True):
        for queue, one in (progress.queues if progress else {}).items():
            if not reading.add(
                name,
                queue.topic,
                queue.broker_name,
                queue.queue_id,
                one.broker_offset,
                one.consumer_offset,
                lag_of(one),
                moment(one.last_timestamp_ms),
            ):
                return


async def _dead_letters(admin: Admin, reading: Reading) -> None:
    topics = [name for name in await admin.topics.names() if name.startswith(DEAD_LETTER_PREFIX)]
    for topic in topics:
        async for message in _newest(admin.messages, topic, MESSAGES_MAX, reading):
            letter = DeadLetter(message)
            if not reading.add(
                letter.group,
                letter.topic,
                letter.cause,
                letter.failures,
                message.message_id,
                " ".join(message.keys) or None,
                message.tags or None,
                _body(message),
                moment(message.store_ms),
                message.broker_name,
                message.queue_id,
                message.queue_offset,
            ):
                return


async def _delayed(admin: Admin, reading: Reading) -> None:
    able, unable = await admin.pending.brokers()
    if unable:
        reading.note(
            f"system.delayed leaves out {', '.join(unable)}, which cannot list what is not due; "
            "orbitmq message pending list can"
        )
    for broker, address in able.items():
        async for one in admin.pending.at(address):
            if not reading.add(
                one.message_id,
                one.topic,
                one.keys or None,
                one.body_bytes,
                moment(one.due_ms),
                moment(one.stored_ms),
                broker,
            ):
                return


async def _trace(admin: Admin, reading: Reading) -> None:
    reports: list[Report] = []
    malformed = 0
    async for message in _newest(admin.messages, TRACE_TOPIC, MESSAGES_MAX, reading):
        try:
            records, wrong = decode_records(message.body)
        except ProtocolError:
            malformed += 1
            continue
        malformed += len(wrong)
        client = message.born_host[0]
        reports += [Report(record, client, message.store_ms) for record in records]
    if malformed:
        reading.note(f"system.trace leaves out {malformed} parts of traces that are malformed")
    for journey in journeys_of(reports):
        for step in journey.steps:
            if not reading.add(
                journey.message_id,
                journey.topic or None,
                " ".join(journey.keys) or None,
                journey.tags or None,
                moment(step.time_ms),
                step.kind.value,
                step.group or None,
                step.client or None,
                step.broker or None,
                step.cost_ms,
                step.retries,
                step.result,
            ):
                return


async def _newest(
    messages: Messages, topic: str, count: int, reading: Reading
) -> AsyncIterator[ReceivedMessage]:
    """The newest messages of a topic; none if it does not exist."""
    number = 0
    try:
        async for message in messages.newest(topic, count):
            number += 1
            yield message
    except RouteNotFoundError:
        return
    except RemoteError as error:
        if error.code != ResponseCode.NO_PERMISSION:
            raise
        reading.note(
            f"{topic} is left out, as it cannot be read: orbitmq topic permit {topic} rw allows it"
        )
    if number >= count:
        reading.note(f"of {topic}, the newest {number} messages are read")


async def _all(ask: Callable[[T], Awaitable[R]], things: Iterable[T]) -> list[R | None]:
    """Ask for each thing, some at a time; None for what is gone meanwhile."""
    room = asyncio.Semaphore(_REQUESTS_MAX)

    async def one(thing: T) -> R | None:
        async with room:
            try:
                return await ask(thing)
            except RouteNotFoundError:
                return None

    return list(await asyncio.gather(*map(one, things)))


def _body(message: ReceivedMessage) -> bytes | None:
    try:
        return message.body
    except ProtocolError:
        return None


def moment(timestamp_ms: int) -> datetime.datetime | None:
    """A time as a row has it; None if there is none, or no calendar has it."""
    try:
        return _EPOCH + datetime.timedelta(milliseconds=timestamp_ms) if timestamp_ms > 0 else None
    except OverflowError:
        return None


_QUEUE: Final = (
    SystemColumn("brokerName", "STRING", "the broker"),
    SystemColumn("queueId", "INT", "the queue"),
)
SYSTEM_TABLES: Final = {
    table.name.removeprefix("system."): table
    for table in (
        SystemTable(
            "system.topics",
            (
                SystemColumn("topic", "STRING", "its name"),
                SystemColumn("brokerName", "STRING", "the broker that has it"),
                SystemColumn("readQueues", "INT", "queues to read there"),
                SystemColumn("writeQueues", "INT", "queues to send to there"),
                SystemColumn("permission", "STRING", "rw, r, w or none"),
                SystemColumn("ordered", "BOOLEAN", "whether its order outlives changes of brokers"),
                SystemColumn("messages", "BIGINT", "how many messages it has there"),
                SystemColumn("storeTimestamp", "TIMESTAMP", "when the newest was stored"),
            ),
            _topics,
        ),
        SystemTable(
            "system.groups",
            (
                SystemColumn("group", "STRING", "its name"),
                SystemColumn("members", "INT", "members that are connected"),
                SystemColumn("lag", "BIGINT", "messages that it has not consumed"),
                SystemColumn("consumedPerSecond", "DOUBLE", "messages a second, as brokers say"),
                SystemColumn("mayConsume", "BOOLEAN", "whether brokers let it consume"),
                SystemColumn("mayBroadcast", "BOOLEAN", "whether they let it broadcast"),
                SystemColumn("inOrder", "BOOLEAN", "whether it consumes queues in order"),
                SystemColumn("retriesMax", "INT", "retries before a message is a dead letter"),
            ),
            _groups,
        ),
        SystemTable(
            "system.lag",
            (
                SystemColumn("group", "STRING", "the consumer group"),
                SystemColumn("topic", "STRING", "the topic"),
                *_QUEUE,
                SystemColumn("endOffset", "BIGINT", "where the queue ends"),
                SystemColumn("committedOffset", "BIGINT", "where the group is"),
                SystemColumn("lag", "BIGINT", "messages between them"),
                SystemColumn("storeTimestamp", "TIMESTAMP", "when the last consumed was stored"),
            ),
            _lag,
        ),
        SystemTable(
            "system.dlq",
            (
                SystemColumn("group", "STRING", "the group that gave up on it"),
                SystemColumn("topic", "STRING", "the topic that it was sent to"),
                SystemColumn("cause", "STRING", "why the last attempt failed, as far as known"),
                SystemColumn("failures", "INT", "how often the group failed"),
                SystemColumn("msgId", "STRING", "its id"),
                SystemColumn("keys", "STRING", "its keys"),
                SystemColumn("tags", "STRING", "its tags"),
                SystemColumn("body", "BINARY", "its content"),
                SystemColumn("storeTimestamp", "TIMESTAMP", "when it became a dead letter"),
                *_QUEUE,
                SystemColumn("queueOffset", "BIGINT", "its number in the queue of dead letters"),
            ),
            _dead_letters,
        ),
        SystemTable(
            "system.delayed",
            (
                SystemColumn("msgId", "STRING", "its id"),
                SystemColumn("topic", "STRING", "the topic that it is for"),
                SystemColumn("keys", "STRING", "its keys"),
                SystemColumn("bodyBytes", "INT", "the size of its content"),
                SystemColumn("dueTimestamp", "TIMESTAMP", "when it is due"),
                SystemColumn("storeTimestamp", "TIMESTAMP", "when it was stored"),
                SystemColumn("brokerName", "STRING", "the broker that has it"),
            ),
            _delayed,
        ),
        SystemTable(
            "system.trace",
            (
                SystemColumn("msgId", "STRING", "the message"),
                SystemColumn("topic", "STRING", "its topic"),
                SystemColumn("keys", "STRING", "its keys"),
                SystemColumn("tags", "STRING", "its tags"),
                SystemColumn("time", "TIMESTAMP", "when the step was"),
                SystemColumn("step", "STRING", "sent, consumed, recalled, …"),
                SystemColumn("group", "STRING", "the group of the client"),
                SystemColumn("client", "STRING", "its host"),
                SystemColumn("broker", "STRING", "the broker's address, as far as known"),
                SystemColumn("costMs", "INT", "how long the step took"),
                SystemColumn("retries", "INT", "how often it was delivered before"),
                SystemColumn("result", "STRING", "how the step ended"),
            ),
            _trace,
        ),
    )
}
