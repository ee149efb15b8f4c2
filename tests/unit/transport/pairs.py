"""A connection of ours whose other end is a bare socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from orbitmq.clock import ManualClock
from orbitmq.transport.connection import Connection, Processor
from orbitmq.transport.limits import ByteBudget, CallBudgets, ConnectionLimits
from orbitmq.transport.request_loop import RequestLoop
from orbitmq.transport.turns import SlowTurns
from orbitmq.transport.warning_limit import WarningLimit
from tests.integration.transport.raw_peer import RawPeer, raw_serving
from tests.integration.transport.serving import ECHO, LARGE, echo, large

MIB = 1024 * 1024
LIMITS = ConnectionLimits(
    frame_bytes_max=16 * MIB,
    work_bytes_max=MIB,
    write_high_water_bytes=65536,
    write_bytes_max=4 * MIB,
)


@dataclass
class Parts:
    """What a connection is made of."""

    processor: Processor = field(default_factory=lambda: RequestLoop({ECHO: echo, LARGE: large}))
    limits: ConnectionLimits = LIMITS
    clock: ManualClock = field(default_factory=ManualClock)
    kept_bytes: ByteBudget = field(default_factory=lambda: ByteBudget(2 * MIB))
    calls: CallBudgets = field(default_factory=lambda: CallBudgets(oneway_max=8, unanswered_max=8))
    slow_turns: SlowTurns | None = None
    seen: list[str] = field(default_factory=list)

    def new_connection(self) -> Connection:
        return Connection(
            processor=self.processor,
            limits=self.limits,
            kept_bytes=self.kept_bytes,
            calls=self.calls,
            clock=self.clock,
            warnings=WarningLimit(self.clock, "connections closed for bad input or refused"),
            on_open=lambda _: self.seen.append("open"),
            on_close=lambda _, error: self.seen.append(f"close {type(error).__name__}"),
            slow_turns=self.slow_turns,
        )

    @property
    def is_free(self) -> bool:
        in_flight = self.calls.oneway.in_flight + self.calls.unanswered.in_flight
        return in_flight == 0 and self.kept_bytes.taken == 0


@asynccontextmanager
async def connected(parts: Parts) -> AsyncIterator[tuple[Connection, RawPeer]]:
    """Connect; at the end the connection is aborted and must have returned its budgets."""
    connection = parts.new_connection()
    async with raw_serving(receive_buffer_bytes=65536) as server:
        await asyncio.get_running_loop().create_connection(
            lambda: connection, "127.0.0.1", server.port
        )
        peer = await server.accept()
        yield connection, peer
        connection.abort()
        while len(parts.seen) < 2:
            await parts.clock.advance(0)
    assert parts.is_free
