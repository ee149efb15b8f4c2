"""Requests of exactly-once writers, and about their queries."""

from __future__ import annotations

import heapq
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from orbitmq.broker.exactly_once.known_batches import summary_of
from orbitmq.broker.exactly_once.staged_rows import RowName, check_write_id, staged
from orbitmq.disk import off_loop
from orbitmq.errors import ProtocolError, RequestRefusedError
from orbitmq.model.names import STAGING_TOPIC
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.staged_writes import (
    AppointCoordinator,
    BatchDecision,
    CoordinatorReply,
    DecideWrites,
    ForgetQuery,
    ListQueries,
    MoveRows,
    Part,
    QueryPage,
    QuerySummary,
    StagedReply,
    StageRows,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from orbitmq.broker.exactly_once.deciding import Deciding
    from orbitmq.broker.exactly_once.known_batches import KnownBatches
    from orbitmq.broker.exactly_once.moving import Moving
    from orbitmq.broker.exactly_once.query_states import QueryStates
    from orbitmq.broker.handlers.sending import SendRequests
    from orbitmq.broker.statistics.counters import Counters
    from orbitmq.broker.storing import Storing
    from orbitmq.protocol.command import Command
    from orbitmq.transport.connection import Connection
    from orbitmq.transport.request_loop import Handler

T = TypeVar("T")

log = logging.getLogger(__name__)

_WAIT_MS_MAX: Final = 30_000
PARTS_MAX: Final = 1_000
WRITES_MAX: Final = 20_000
_LONG_MAX: Final = 2**63 - 1
_TEXT_LENGTH_MAX: Final = 255
# Queries in one reply, and brokers that have confirmed their batches: a few megabytes.
PAGE_MAX: Final = 5_000
CONFIRMED_MAX: Final = 20_000


@dataclass(slots=True, eq=False, kw_only=True)
class StagedWriteRequests:
    """Stores staged rows, and decisions about them."""

    # Why sends are refused now, as a code and a remark; None if they are accepted.
    refusal: Callable[[], tuple[ResponseCode, str] | None]
    sending: SendRequests
    storing: Storing
    deciding: Deciding
    moving: Moving
    states: QueryStates
    # What the log has of them, for a broker that has not loaded them.
    known: KnownBatches
    counters: Counters

    def by_code(self) -> Mapping[int, Handler]:
        """The handlers by request code."""
        return {
            RequestCode.STAGE_ROWS: self.stage,
            RequestCode.APPOINT_COORDINATOR: self.appoint,
            RequestCode.DECIDE_WRITES: self.decide,
            RequestCode.MOVE_ROWS: self.move,
            RequestCode.LIST_QUERIES: self.list_queries,
            RequestCode.FORGET_QUERY: self.forget,
        }

    async def stage(self, connection: Connection, request: Command) -> Command:
        """Stage rows; replies once they are on disk."""
        self._check_accepting()
        asked = StageRows.decode(request.fields)
        check_write_id(asked.write_id)
        if asked.first_sequence < 0:
            raise RequestRefusedError(
                ResponseCode.INVALID_PARAMETER,
                f"the first sequence of rows cannot be {asked.first_sequence}",
            )
        drafts = await self.sending.drafts_of(connection, request.body, asked)
        receipts = await self.storing.put_durably(
            [
                staged(draft, RowName(asked.write_id, asked.first_sequence + index))
                for index, draft in enumerate(drafts)
            ]
        )
        self.counters.put(STAGING_TOPIC).add(
            len(receipts), sum(receipt.record_bytes for receipt in receipts)
        )
        return request.reply(
            StagedReply(
                start=Long(receipts[0].queue_offset), end=Long(receipts[-1].queue_offset + 1)
            )
        )

    async def appoint(self, _: Connection, request: Command) -> Command:
        """Set the coordinator of a query unless it has one; the reply names it."""
        self._check_accepting()
        asked = AppointCoordinator.decode(request.fields)
        coordinator = await self.deciding.appoint(asked.query, asked.candidate)
        return request.reply(CoordinatorReply(coordinator=coordinator))

    async def decide(self, _: Connection, request: Command) -> Command:
        """Store a decision, or return the one already made; waits until it is complete."""
        self._check_accepting()
        asked = DecideWrites.decode(request.fields)
        decision = _body(request, BatchDecision)
        if len(decision.parts) > PARTS_MAX or any(
            len(part.writes) > WRITES_MAX for part in decision.parts.values()
        ):
            raise RequestRefusedError(
                ResponseCode.INVALID_PARAMETER,
                f"the decision names over {PARTS_MAX} brokers, or over {WRITES_MAX} writes of one",
                hint="write with fewer partitions",
            )
        if not 0 <= decision.batch <= _LONG_MAX:
            raise RequestRefusedError(
                ResponseCode.INVALID_PARAMETER, f"{decision.batch} cannot be the number of a batch"
            )
        for part in decision.parts.values():
            _check_part(part)
        source = decision.source
        _check_lengths(decision.target, *((source.start, source.end) if source else ()))
        wait_ms = min(asked.wait_ms, _WAIT_MS_MAX)
        status = await self.deciding.decide(
            decision, wait_ms=wait_ms, first_batch=asked.first_batch
        )
        return request.reply(body=msgspec.json.encode(status))

    async def move(self, _: Connection, request: Command) -> Command:
        """Move decided rows to their queues; replies once they are on disk."""
        self._check_accepting()
        asked = MoveRows.decode(request.fields)
        part = _body(request, Part)
        _check_part(part)
        _check_lengths(asked.digest or "", asked.previous_digest or "")
        await self.moving.move(asked, part)
        return request.reply()

    async def list_queries(self, _: Connection, request: Command) -> Command:
        """List one query, or a page of all in the order of their ids."""
        asked = ListQueries.decode(request.fields)
        if self.states.is_loaded:
            self.states.check_readable()
            states = self.states.states
            page = QueryPage(queries=_page(asked, states, lambda query: summary_of(states[query])))
        else:
            known = await off_loop(self.known.read)
            page = QueryPage(
                queries=_page(asked, known.queries, known.queries.__getitem__),
                from_log=True,
                damage=known.damage,
            )
        return request.reply(body=msgspec.json.encode(page))

    async def forget(self, _: Connection, request: Command) -> Command:
        """Forget a query: its next batch is decided like that of a new one."""
        self._check_accepting()
        asked = ForgetQuery.decode(request.fields)
        await self.states.forget(asked.query, force=asked.force)
        log.warning("query forgotten query=%s", asked.query)
        return request.reply()

    def _check_accepting(self) -> None:
        refusal = self.refusal()
        if refusal is not None:
            code, reason = refusal
            if code == ResponseCode.SYSTEM_ERROR:
                # It passes: slaves come back, and the writer retries.
                code = ResponseCode.SERVICE_NOT_AVAILABLE
            raise RequestRefusedError(code, reason)


def _page(
    asked: ListQueries, known: Mapping[str, object], summary: Callable[[str], QuerySummary]
) -> list[QuerySummary]:
    if asked.query is not None:
        return [summary(asked.query)] if asked.query in known else []
    limit, after = max(1, min(asked.limit, PAGE_MAX)), asked.after or ""
    page: list[QuerySummary] = []
    confirmed = 0
    for query in heapq.nsmallest(limit, (query for query in known if query > after)):
        page.append(summary(query))
        confirmed += len(page[-1].confirmed)
        if confirmed > CONFIRMED_MAX:
            break
    return page


def _check_part(part: Part) -> None:
    if not 0 <= part.start <= part.end <= _LONG_MAX or min(part.writes.values(), default=1) < 1:
        raise RequestRefusedError(
            ResponseCode.INVALID_PARAMETER,
            f"invalid part: rows from {part.start} to {part.end} of the staging queue, or a write "
            "without rows",
        )


def _check_lengths(*texts: str) -> None:
    """Raise for a topic or digest that is too long to keep."""
    longest = max(map(len, texts))
    if longest > _TEXT_LENGTH_MAX:
        raise RequestRefusedError(
            ResponseCode.INVALID_PARAMETER,
            f"a topic or digest of {longest} characters is above the limit of {_TEXT_LENGTH_MAX}",
        )


def _body(request: Command, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(request.body, type=kind)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ProtocolError(f"the body is no {kind.__name__}: {error}") from error
