"""What writes rows exactly once, put together, started and stopped."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from orbitmq.broker.exactly_once.broker_addresses import BrokerAddresses
from orbitmq.broker.exactly_once.deciding import Deciding
from orbitmq.broker.exactly_once.moving import Moving
from orbitmq.broker.exactly_once.query_states import QueryStates
from orbitmq.disk import off_loop
from orbitmq.lifecycle import Periodic
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.staged_writes import MoveRows

if TYPE_CHECKING:
    from orbitmq.broker.storing import Storing
    from orbitmq.clock import Clock
    from orbitmq.protocol.requests.staged_writes import Part
    from orbitmq.store.log.draft import Draft
    from orbitmq.store.message_store import MessageStore
    from orbitmq.transport.rpc_client import RpcClient

_CARRY_INTERVAL_MS: Final = 10_000
# A broker may have millions of rows to move.
_MOVE_TIMEOUT_MS: Final = 300_000


class ExactlyOnce:
    """The parts of a broker that keep, decide on and move staged rows."""

    def __init__(
        self,
        *,
        broker_name: Callable[[], str],
        name_servers: Callable[[], list[str]],
        store: MessageStore,
        storing: Storing,
        rpc: RpcClient,
        on_moved: Callable[[Draft], None],
        clock: Clock,
    ) -> None:
        self._broker_name = broker_name
        self._rpc = rpc
        self._addresses = BrokerAddresses(rpc, name_servers)
        self.states = QueryStates(store, storing, clock=clock)
        store.keep(self.states.needed_from)
        self.moving = Moving(store, self.states, on_moved=on_moved)
        self.deciding = Deciding(broker_name, self.states, self._tell, clock=clock)
        self.carrying = Periodic(
            "query states", _CARRY_INTERVAL_MS, self.states.carry_forward, clock
        )

    async def load(self) -> None:
        """Read the states of queries."""
        await off_loop(self.states.load)

    async def _tell(self, name: str, query: str, batch: int, part: Part) -> None:
        """Have a broker, which may be this one, move its part of a batch."""
        own = self._broker_name()
        if name == own:
            await self.moving.move(query, batch, own, part)
            return
        await self._rpc.call(
            await self._addresses.master_of(name),
            MoveRows(query=query, batch=Long(batch), coordinator=own),
            msgspec.json.encode(part),
            timeout_ms=_MOVE_TIMEOUT_MS,
        )
