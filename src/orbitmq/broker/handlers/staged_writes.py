"""Requests of writers whose rows count once: stage, appoint, decide, move."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from orbitmq.broker.exactly_once.staged_rows import RowName, check_write_id, staged
from orbitmq.errors import ProtocolError, RequestRefusedError
from orbitmq.model.names import STAGING_TOPIC
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.staged_writes import (
    AppointCoordinator,
    BatchDecision,
    CoordinatorReply,
    DecideWrites,
    MoveRows,
    Part,
    StagedReply,
    StageRows,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from orbitmq.broker.exactly_once.deciding import Deciding
    from orbitmq.broker.exactly_once.moving import Moving
    from orbitmq.broker.handlers.sending import SendRequests
    from orbitmq.broker.statistics.counters import Counters
    from orbitmq.broker.storing import Storing
    from orbitmq.protocol.command import Command
    from orbitmq.transport.connection import Connection
    from orbitmq.transport.request_loop import Handler

T = TypeVar("T")

_WAIT_MS_MAX: Final = 30_000
_PARTS_MAX: Final = 1_000
_WRITES_MAX: Final = 20_000
_LONG_MAX: Final = 2**63 - 1


class StagedWriteRequests:
    """Takes rows aside, and what is decided of them."""

    def __init__(
        self,
        *,
        why_not: Callable[[], tuple[ResponseCode, str] | None],
        sending: SendRequests,
        storing: Storing,
        deciding: Deciding,
        moving: Moving,
        counters: Counters,
    ) -> None:
        # Why no sends are taken at present, as a code and a remark; None when they are.
        self._why_not = why_not
        self._sending = sending
        self._storing = storing
        self._deciding = deciding
        self._moving = moving
        self._counters = counters

    def by_code(self) -> Mapping[int, Handler]:
        """Give the handler of each request code."""
        return {
            RequestCode.STAGE_ROWS: self.stage,
            RequestCode.APPOINT_COORDINATOR: self.appoint,
            RequestCode.DECIDE_WRITES: self.decide,
            RequestCode.MOVE_ROWS: self.move,
        }

    async def stage(self, connection: Connection, request: Command) -> Command:
        """Keep rows aside; answered when they are on disk."""
        self._check_taken()
        asked = StageRows.decode(request.fields)
        check_write_id(asked.write_id)
        if asked.first_sequence < 0:
            raise RequestRefusedError(
                ResponseCode.INVALID_PARAMETER,
                f"rows cannot be numbered from {asked.first_sequence} on",
            )
        drafts = await self._sending.drafts_of(connection, request.body, asked)
        receipts = await self._storing.put_durably(
            [
                staged(draft, RowName(asked.write_id, asked.first_sequence + index))
                for index, draft in enumerate(drafts)
            ]
        )
        self._counters.put(STAGING_TOPIC).add(
            len(receipts), sum(receipt.record_bytes for receipt in receipts)
        )
        return request.reply(
            StagedReply(
                start=Long(receipts[0].queue_offset), end=Long(receipts[-1].queue_offset + 1)
            )
        )

    async def appoint(self, _: Connection, request: Command) -> Command:
        """Keep the coordinator of a query, or say which it is."""
        self._check_taken()
        asked = AppointCoordinator.decode(request.fields)
        coordinator = await self._deciding.appoint(asked.query, asked.candidate)
        return request.reply(CoordinatorReply(coordinator=coordinator))

    async def decide(self, _: Connection, request: Command) -> Command:
        """Store a decision, or give back the one that stands; waits until it is complete."""
        self._check_taken()
        asked = DecideWrites.decode(request.fields)
        decision = _body(request, BatchDecision)
        if len(decision.parts) > _PARTS_MAX or any(
            len(part.writes) > _WRITES_MAX for part in decision.parts.values()
        ):
            raise RequestRefusedError(
                ResponseCode.INVALID_PARAMETER,
                f"the decision names over {_PARTS_MAX} brokers, or {_WRITES_MAX} writes of one",
                hint="write with fewer partitions",
            )
        if not 0 <= decision.batch <= _LONG_MAX:
            raise RequestRefusedError(
                ResponseCode.INVALID_PARAMETER, f"{decision.batch} cannot be the number of a batch"
            )
        for part in decision.parts.values():
            _check_part(part)
        wait_ms = min(asked.wait_ms, _WAIT_MS_MAX)
        standing = await self._deciding.decide(decision, wait_ms=wait_ms)
        return request.reply(body=msgspec.json.encode(standing))

    async def move(self, _: Connection, request: Command) -> Command:
        """Move decided rows to their queues; answered when they are on disk."""
        self._check_taken()
        asked = MoveRows.decode(request.fields)
        part = _body(request, Part)
        _check_part(part)
        await self._moving.move(asked.query, asked.batch, asked.coordinator, part)
        return request.reply()

    def _check_taken(self) -> None:
        refusal = self._why_not()
        if refusal is not None:
            code, reason = refusal
            raise RequestRefusedError(code, reason)


def _check_part(part: Part) -> None:
    if not 0 <= part.start <= part.end <= _LONG_MAX or min(part.writes.values(), default=1) < 1:
        raise RequestRefusedError(
            ResponseCode.INVALID_PARAMETER,
            f"rows cannot lie between {part.start} and {part.end} of the staging queue, or a write "
            "has none there",
        )


def _body(request: Command, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(request.body, type=kind)
    except msgspec.MsgspecError as error:
        raise ProtocolError(f"the body is no {kind.__name__}: {error}") from error
