"""Assembles the parts that write rows exactly once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from orbitmq import java_json
from orbitmq.broker.exactly_once.batch_write_expiry import BatchWriteExpiry
from orbitmq.broker.exactly_once.deciding import Deciding
from orbitmq.broker.exactly_once.known_batches import KnownBatches
from orbitmq.broker.exactly_once.moving import Moving
from orbitmq.broker.exactly_once.query_states import QueryStates
from orbitmq.disk import off_loop
from orbitmq.errors import BatchConflictError, OrbitError, RemoteError, RequestRefusedError
from orbitmq.lifecycle import Periodic
from orbitmq.model.routes import MASTER_ID, ClusterView
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.key_values import DeleteKeyValue
from orbitmq.protocol.requests.routing import GetClusterView
from orbitmq.protocol.requests.staged_writes import (
    COORDINATORS,
    FIRST_BATCHES,
    ListQueries,
    MoveRows,
    Part,
    QueryPage,
)

if TYPE_CHECKING:
    from orbitmq.broker.exactly_once.query_states import QueryState
    from orbitmq.broker.storing import Storing
    from orbitmq.broker.topics.topic_table import TopicTable
    from orbitmq.clock import Clock
    from orbitmq.store.log.draft import Draft
    from orbitmq.store.message_store import MessageStore
    from orbitmq.transport.rpc_client import RpcClient

log = logging.getLogger(__name__)

_CARRY_INTERVAL_MS: Final = 10_000
_EXPIRY_INTERVAL_MS: Final = 60_000
# A broker may have millions of rows to move.
_MOVE_TIMEOUT_MS: Final = 300_000
_CLUSTER_VIEW_TIMEOUT_MS: Final = 3_000
_CHECK_TIMEOUT_MS: Final = 10_000
_CHECKS_AT_ONCE: Final = 64
# Brokers of queries that need no check; without room, all are checked again.
_CHECKED_MAX: Final = 100_000
_NEEDED_BY: Final = (
    "rows that are written exactly once hint=orbitmq query list shows batches that are not complete; "
    "orbitmq query forget --force gives one up"
)


class ExactlyOnce:
    """The parts of a broker that store, decide on and move staged rows."""

    def __init__(  # noqa: PLR0913 - by name
        self,
        *,
        broker_name: Callable[[], str],
        name_servers: Callable[[], list[str]],
        store: MessageStore,
        storing: Storing,
        rpc: RpcClient,
        topics: TopicTable,
        on_moved: Callable[[Draft], None],
        batch_write_hours: Callable[[], int],
        clock: Clock,
    ) -> None:
        self._broker_name = broker_name
        self._name_servers = name_servers
        self._rpc = rpc
        self._addresses = _BrokerAddresses(rpc, name_servers)
        self.states = QueryStates(store, storing, clock=clock)
        self.known = KnownBatches(store)
        self._store = store
        self._topics = topics
        self.moving = Moving(store, self.states, has_queue=self._has_queue, on_moved=on_moved)
        self.deciding = Deciding(
            broker_name, self.states, self._request_move, self._check_confirmed, clock=clock
        )
        # The master of each broker that is known to have what it confirmed, by query and name.
        self._checked: dict[tuple[str, str], str] = {}
        expiry = BatchWriteExpiry(
            broker_name,
            self.states,
            hours=batch_write_hours,
            is_complete_at=self._is_complete_at,
            forget_coordinator=self._forget_coordinator,
            clock=clock,
        )
        self.upkeep = [
            Periodic("query states", _CARRY_INTERVAL_MS, self.states.carry_forward, clock),
            Periodic("batch writes", _EXPIRY_INTERVAL_MS, expiry.run, clock),
        ]

    async def load(self) -> None:
        """Read the states of queries."""
        self._store.protect_log_from(self.states.needed_from, _NEEDED_BY)
        await off_loop(self.states.load)

    def _has_queue(self, name: str, queue_id: int) -> bool:
        topic = self._topics.get(name)
        return topic is not None and queue_id < max(topic.read_queues, topic.write_queues)

    async def _is_complete_at(self, name: str, query: str) -> bool:
        """Whether the coordinator of a query has nothing left to do for it, or has forgotten it."""
        reply = await self._rpc.call(
            await self._addresses.master_of(name), ListQueries(query=query, limit=1)
        )
        page = msgspec.json.decode(reply.body, type=QueryPage)
        if page.from_log:
            raise RequestRefusedError(
                ResponseCode.SERVICE_NOT_AVAILABLE, f"broker {name!r} is starting, or is a slave"
            )
        return all(summary.complete for summary in page.queries)

    async def _forget_coordinator(self, query: str) -> None:
        """Have the name servers forget who decides for a query, those that can be reached."""
        for name_server in self._name_servers():
            try:
                for namespace in (COORDINATORS, FIRST_BATCHES):
                    await self._rpc.call(
                        name_server, DeleteKeyValue(namespace=namespace, key=query)
                    )
            except OrbitError as error:
                # It names the broker that would be appointed again.
                log.info("coordinator still known to=%s reason=%s", name_server, error)

    async def _request_move(self, name: str, decided: QueryState, part: Part) -> None:
        """Have a broker, perhaps this one, move its part of a batch."""
        own = self._broker_name()
        before = decided.confirmed.get(name)
        asked = MoveRows(
            query=decided.query,
            batch=Long(decided.decided),
            coordinator=own,
            digest=decided.digest,
            previous_batch=Long(before.batch) if before is not None else None,
            previous_digest=before.digest if before is not None else None,
        )
        if name == own:
            await self.moving.move(asked, part)
            return
        address = await self._addresses.master_of(name)
        await self._rpc.call(address, asked, msgspec.json.encode(part), timeout_ms=_MOVE_TIMEOUT_MS)
        self._note_checked(decided.query, name, address)

    async def _check_confirmed(self, state: QueryState) -> None:
        """Raise if a broker has another master now that lacks what the broker has confirmed.

        One that knows of the move, and lacks some of its rows, moves them again. Brokers that cannot
        be reached are checked later.
        """
        own = self._broker_name()
        others = [name for name in state.confirmed if name != own]
        if not others:
            return
        try:
            masters = await self._addresses.masters()
        except OrbitError:
            return
        changed = [
            name
            for name in others
            if name in masters and self._checked.get((state.query, name)) != masters[name]
        ]
        for start in range(0, len(changed), _CHECKS_AT_ONCE):
            await asyncio.gather(
                *(
                    self._check_one(state, name, masters[name])
                    for name in changed[start : start + _CHECKS_AT_ONCE]
                )
            )

    async def _check_one(self, state: QueryState, name: str, address: str) -> None:
        last = state.confirmed[name]
        # It is its own predecessor: nothing is begun, and at most completed.
        asked = MoveRows(
            query=state.query,
            batch=Long(last.batch),
            coordinator=self._broker_name(),
            digest=last.digest,
            previous_batch=Long(last.batch),
            previous_digest=last.digest,
        )
        nothing = msgspec.json.encode(Part(writes={}, start=0, end=0))
        try:
            await self._rpc.call(address, asked, nothing, timeout_ms=_CHECK_TIMEOUT_MS)
        except RemoteError as error:
            if error.code == ResponseCode.ILLEGAL_OPERATION:
                raise BatchConflictError(f"broker {name}: {error.remark}") from error
            log.info("not checked query=%s broker=%s reason=%s", state.query, name, error)
        except OrbitError as error:
            log.info("not checked query=%s broker=%s reason=%s", state.query, name, error)
        else:
            self._note_checked(state.query, name, address)

    def _note_checked(self, query: str, name: str, address: str) -> None:
        if len(self._checked) >= _CHECKED_MAX:
            self._checked.clear()
        self._checked[query, name] = address


@dataclass(slots=True, eq=False)
class _BrokerAddresses:
    """Finds other brokers by name, as the name servers know them."""

    rpc: RpcClient
    name_servers: Callable[[], list[str]]

    async def masters(self) -> dict[str, str]:
        """The masters that the first name server to answer knows: address by broker name."""
        failure: OrbitError | None = None
        for name_server in self.name_servers():
            try:
                return await self._masters_at(name_server)
            except OrbitError as error:
                failure = error
        if failure is not None:
            raise failure
        return {}

    async def master_of(self, name: str) -> str:
        """Look up the address of a broker's master."""
        failure: OrbitError | None = None
        for name_server in self.name_servers():
            try:
                masters = await self._masters_at(name_server)
            except OrbitError as error:
                failure = error
                continue
            if name in masters:
                return masters[name]
        if failure is not None:
            raise failure
        raise RequestRefusedError(
            ResponseCode.BROKER_NOT_EXIST,
            f"no name server knows the address of broker {name!r}",
            hint="it is down, or has left the cluster",
        )

    async def _masters_at(self, name_server: str) -> dict[str, str]:
        reply = await self.rpc.call(
            name_server, GetClusterView(), timeout_ms=_CLUSTER_VIEW_TIMEOUT_MS
        )
        view = java_json.decode(reply.body, ClusterView)
        return {
            name: group.addresses[MASTER_ID]
            for name, group in view.brokers.items()
            if MASTER_ID in group.addresses
        }
