"""The requests of a filter server: pulls, and classes that consumers register."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from orbitmq.errors import (
    FilterFunctionError,
    FilterMissingError,
    ProtocolError,
    RequestRefusedError,
    TransportError,
)
from orbitmq.filterserver.worker import Batch
from orbitmq.model.routes import MASTER_ID
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.filter_servers import RegisterFilterClass
from orbitmq.protocol.requests.pulling import PullMessages, PullReply

if TYPE_CHECKING:
    from orbitmq.clock import Clock
    from orbitmq.filterserver.broker_link import BrokerLink
    from orbitmq.filterserver.failure_log import FailureLog
    from orbitmq.filterserver.filter_classes import FilterClasses
    from orbitmq.filterserver.worker import Outcome
    from orbitmq.filterserver.workers import FilterWorkers
    from orbitmq.protocol.command import Command
    from orbitmq.transport.connection import Connection
    from orbitmq.transport.request_loop import Handler

# Replies of a broker that say where its queue is, besides success.
_EMPTY: Final = frozenset(
    {
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    }
)
# Where nothing matches, so much time is spent on looking further before the consumer is told.
_SCAN_MS_MAX: Final = 1000
_NAMES_SHOWN: Final = 10


@dataclass(slots=True, eq=False, kw_only=True)
class FilterRequests:
    """Answers consumers."""

    broker: BrokerLink
    classes: FilterClasses
    # The installed filters, by name.
    workers: Mapping[str, FilterWorkers]
    failures: FailureLog
    clock: Clock
    # Held pulls are answered then, with nothing.
    is_stopping: bool = field(default=False)

    def by_code(self) -> Mapping[int, Handler]:
        """The handlers by request code."""
        return {
            RequestCode.PULL_MESSAGE: self.pull,
            RequestCode.REGISTER_MESSAGE_FILTER_CLASS: self.register_class,
        }

    def register_class(self, _: Connection, request: Command) -> Command:
        """Remember the class of a group; the source that comes with it is never run."""
        self.classes.register(RegisterFilterClass.decode(request.fields))
        return request.reply()

    async def pull(self, connection: Connection, request: Command) -> Command:
        """Answer a pull with the messages that the function of its class accepts."""
        asked = PullMessages.decode(request.fields)
        try:
            return await self._pull(connection, request, asked)
        except FilterFunctionError as error:
            self.failures.note(error, asked.consumer_group)
            # The server would log it for every retry of the consumer.
            error.routine = True
            raise

    async def _pull(self, connection: Connection, request: Command, asked: PullMessages) -> Command:
        workers = self._find(await self.classes.of(asked))
        scan_ends_ms = self.clock.monotonic_ms() + _SCAN_MS_MAX
        try:
            pulled = await self.broker.pull(asked, asked.queue_offset, may_hold=True)
        except TransportError:
            if self.is_stopping:
                return _nothing_new(request, asked.queue_offset)
            raise
        if pulled.code in _EMPTY:
            return _passed_on(request, pulled)
        if pulled.code != ResponseCode.SUCCESS:
            raise RequestRefusedError(pulled.code, pulled.remark, fields=pulled.fields)
        while True:
            places = _places(pulled)
            outcome = await self._filter(workers, asked, pulled)
            saw_all = outcome.seen_bytes == len(pulled.body)
            offset = places.next_offset if saw_all else outcome.next_offset
            if outcome.accepted:
                return _reply(request, places, offset, _cut(pulled.body, outcome.accepted))
            if (
                self.clock.monotonic_ms() >= scan_ends_ms
                or outcome.failure
                or connection.closed
                or self.is_stopping
            ):
                return _reply(request, places, offset)
            pulled = await self.broker.pull(asked, offset, may_hold=False)
            if pulled.code != ResponseCode.SUCCESS:
                return _reply(request, places, offset)

    def _find(self, name: str) -> FilterWorkers:
        workers = self.workers.get(name)
        if workers is None:
            shown = ", ".join(sorted(self.workers)[:_NAMES_SHOWN]) or "none"
            raise FilterMissingError(
                f"filter {name[:255]!r} is not installed on this filter server",
                hint="install a package with that entry point in the group orbitmq.filters, and "
                f"restart the filter server; installed: {shown}",
            )
        return workers

    @staticmethod
    async def _filter(workers: FilterWorkers, asked: PullMessages, pulled: Command) -> Outcome:
        outcome = await workers.run(Batch(asked.consumer_group, pulled.body))
        if outcome.failure and not outcome.seen_bytes:
            # What it accepted before a failure is delivered first.
            raise FilterFunctionError(workers.name, outcome.failure)
        return outcome


def _places(pulled: Command) -> PullReply:
    try:
        return PullReply.decode(pulled.fields)
    except ProtocolError as error:
        raise ProtocolError(f"the broker's reply to a pull is unreadable: {error}") from error


def _cut(body: bytes, spans: list[int]) -> bytes:
    if spans == [0, len(body)]:
        return body
    view = memoryview(body)
    return b"".join(view[start:end] for start, end in zip(spans[::2], spans[1::2], strict=True))


def _reply(request: Command, places: PullReply, offset: int, records: bytes = b"") -> Command:
    code = ResponseCode.SUCCESS if records else ResponseCode.PULL_RETRY_IMMEDIATELY
    return request.reply(
        PullReply(
            # Compat: as RocketMQ's filter server, it sends nobody to a slave, which has others.
            suggested_broker_id=Long(MASTER_ID),
            next_offset=Long(offset),
            min_offset=places.min_offset,
            max_offset=places.max_offset,
        ),
        code=code,
        remark="FOUND" if records else "NO_MATCHED_MESSAGE",
        body=records,
    )


def _passed_on(request: Command, pulled: Command) -> Command:
    reply = request.reply(code=pulled.code, remark=pulled.remark)
    reply.fields = pulled.fields | {"suggestWhichBrokerId": str(MASTER_ID)}
    return reply


def _nothing_new(request: Command, offset: int) -> Command:
    places = PullReply(
        suggested_broker_id=Long(MASTER_ID),
        next_offset=Long(offset),
        min_offset=Long(0),
        max_offset=Long(offset),
    )
    return request.reply(places, code=ResponseCode.PULL_NOT_FOUND, remark="the server is stopping")
