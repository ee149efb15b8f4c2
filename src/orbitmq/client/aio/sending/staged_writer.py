"""The staged writer: rows become visible when their batch is committed.

    async with StagedWriter(namesrv="127.0.0.1:9876") as writer:
        staged = await writer.stage(queue, packed_rows, write_id=new_write_id(), first_sequence=0)
        ...
        await writer.commit(BatchDecision(query=…, batch=…, parts=…))

Needs OrbitMQ brokers; docs/decisions/0004 explains how it works.

Threads: one event loop, the one it was started on.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from orbitmq.client.aio.admin.key_values import KeyValues
from orbitmq.client.aio.admin.reach import Reach
from orbitmq.client.aio.instance.client_lifecycle import ClientLifecycle
from orbitmq.client.aio.instance.instances import acquire, with_own_instance
from orbitmq.client.keywords import ClientKeywords, options_of
from orbitmq.client.options import ClientOptions
from orbitmq.clock import SystemClock
from orbitmq.errors import (
    BatchConflictError,
    BrokerUnknownError,
    ClusterMissingError,
    CommitError,
    NotSupportedError,
    OrbitError,
    RemoteError,
    RouteNotFoundError,
)
from orbitmq.lifecycle import OwnedTasks
from orbitmq.model.names import TEMPLATE_TOPIC
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.staged_writes import (
    COORDINATORS,
    FIRST_BATCHES,
    AppointCoordinator,
    BatchStatus,
    CoordinatorReply,
    DecideWrites,
    StagedReply,
    StageRows,
)

if TYPE_CHECKING:
    from typing import Unpack

    from orbitmq.clock import Clock
    from orbitmq.model.queues import MessageQueue
    from orbitmq.protocol.requests.staged_writes import BatchDecision

T = TypeVar("T")

STAGE_TIMEOUT_MS: Final = 60_000
COMMIT_TIMEOUT_MS: Final = 120_000
# How long one request may take, and the pause before the next.
_CALL_MS_MAX: Final = 15_000
_PAUSE_MS: Final = 200
# A broker that waits for others replies this long before the request times out.
_ANSWER_MS: Final = 500
_TEMPLATE_QUEUES: Final = 4
_GROUP: Final = "ORBITMQ_STAGED_WRITES"
_RETRIED_CODES: Final = frozenset(
    {
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
        ResponseCode.SERVICE_NOT_AVAILABLE,
    }
)


def new_write_id() -> str:
    """Make a unique id for a write."""
    return uuid.uuid4().hex


class StagedWriter(ClientLifecycle):
    """Stages rows at the brokers of their queues, and commits them by batch."""

    def __init__(self, *, clock: Clock | None = None, **options: Unpack[ClientKeywords]) -> None:
        super().__init__("the staged writer")
        self._options = options_of(ClientOptions, options)
        self._clock = clock or SystemClock()
        self._staging = OwnedTasks()

    async def _open(self) -> None:
        # The first call connects.
        options = with_own_instance(self._options, self._clock)
        self._instance = await acquire(options, clock=self._clock)

    async def _close(self) -> None:
        await self._staging.cancel()

    async def stage(
        self,
        queue: MessageQueue,
        packed_rows: bytes,
        *,
        write_id: str,
        first_sequence: int,
        system_flag: int = 0,
        timeout_ms: float = STAGE_TIMEOUT_MS,
    ) -> StagedReply:
        """Stage rows, packed like a batch, at the broker of their queue.

        Returns their offsets in the broker's staging queue. A lost reply may stage rows twice,
        which does no harm.
        """
        header = StageRows(
            producer_group=_GROUP,
            topic=queue.topic,
            template_topic=TEMPLATE_TOPIC,
            template_queues=_TEMPLATE_QUEUES,
            queue_id=queue.queue_id,
            system_flag=system_flag,
            born_timestamp_ms=Long(self._clock.now_ms()),
            flag=0,
            batch=True,
            broker_name=queue.broker_name,
            write_id=write_id,
            first_sequence=Long(first_sequence),
        )

        async def ask(left_ms: float) -> StagedReply:
            address = await self._master(queue)
            try:
                reply = await self._running().rpc.call(
                    address, header, packed_rows, timeout_ms=left_ms
                )
            except OrbitError as error:
                await self._look_for_master(queue, error)
                raise
            return StagedReply.decode(reply.fields)

        return await self._retry(ask, self._clock.monotonic_ms() + timeout_ms)

    def begin_stage(
        self,
        queue: MessageQueue,
        packed_rows: bytes,
        *,
        write_id: str,
        first_sequence: int,
        timeout_ms: float = STAGE_TIMEOUT_MS,
    ) -> asyncio.Future[StagedReply]:
        """Start to stage rows; arguments as for `stage`. `stop` cancels what is in flight."""
        done: asyncio.Future[StagedReply] = asyncio.get_running_loop().create_future()
        work = self.stage(
            queue,
            packed_rows,
            write_id=write_id,
            first_sequence=first_sequence,
            timeout_ms=timeout_ms,
        )
        self._staging.start(_resolve(done, work), name=f"stage rows at {queue.broker_name}")
        return done

    async def commit(
        self, decision: BatchDecision, *, timeout_ms: float = COMMIT_TIMEOUT_MS
    ) -> BatchStatus:
        """Move the rows of a batch to their queues; returns when all are there.

        Of several commits of one batch the first counts; the others wait for it, and their rows
        are dropped. If theirs are known to be other rows of the source, or a later batch is decided,
        this raises BatchConflictError instead. A failed commit undoes nothing: repeating it, or its
        batch, completes it.
        """
        end_ms = self._clock.monotonic_ms() + timeout_ms
        what = f"batch {decision.batch} of query {decision.query!r}"
        try:
            status = await self._complete(decision, end_ms)
        except OrbitError as error:
            if isinstance(error, RemoteError) and error.code == ResponseCode.ILLEGAL_OPERATION:
                raise BatchConflictError(error.remark) from error
            if not _is_temporary(error):
                raise
            raise CommitError(
                f"{what} cannot be committed: {error}",
                hint="nothing is lost; restart the query when the brokers are back",
            ) from error
        if status.counts is None:
            raise BatchConflictError(
                f"{what} is not written: later batches are decided. Its checkpoint was copied, or "
                "restored from a backup, or another run uses it",
                hint="use one checkpoint per query, and its newest state",
            )
        if status.refused and not status.complete:
            raise BatchConflictError(
                "; ".join(f"broker {name}: {why}" for name, why in status.problems.items())
            )
        if not status.complete:
            waiting = "; ".join(f"{name}: {why}" for name, why in status.problems.items())
            raise CommitError(
                f"{what} is decided, but not complete after {timeout_ms:.0f} ms: "
                f"{waiting or 'brokers are still moving its rows'}",
                hint="the brokers keep working on it; restart the query",
            )
        return status

    async def _complete(self, decision: BatchDecision, end_ms: float) -> BatchStatus:
        """Commit, and wait until it is complete or the time is up."""
        reach = Reach(self._running)
        coordinator = await self._retry(lambda _: self._coordinator(reach, decision), end_ms)
        first_batch = await self._retry(lambda _: _first_batch(reach, decision.query), end_ms)
        body = msgspec.json.encode(decision)

        async def ask(left_ms: float) -> BatchStatus:
            address = await reach.broker(coordinator)
            header = DecideWrites(
                wait_ms=int(max(left_ms - _ANSWER_MS, 0)),
                first_batch=Long(first_batch) if first_batch is not None else None,
            )
            reply = await reach.ask(address, header, body, timeout_ms=left_ms)
            return msgspec.json.decode(reply.body, type=BatchStatus)

        while True:
            status = await self._retry(ask, end_ms)
            if (
                status.complete
                or status.refused
                or self._clock.monotonic_ms() >= end_ms - _ANSWER_MS
            ):
                return status
            await self._clock.sleep_ms(_PAUSE_MS)

    async def _coordinator(self, reach: Reach, decision: BatchDecision) -> str:
        """Find the broker that decides for a query; appoint one at its first batch."""
        masters = await reach.masters()
        known: dict[str, str | None] = {}
        for name, address in masters.items():
            try:
                known[name] = await self._appoint(reach, address, decision.query, None)
            except NotSupportedError:
                # A RocketMQ broker among ours; its queues cannot be written exactly once.
                if name in decision.parts:
                    raise
        if not known:
            raise CommitError(
                "no OrbitMQ broker is running",
                hint="exactly-once writes need OrbitMQ brokers; start one",
            )
        # The appointed broker may be down now: name servers remember it, too.
        key_values = KeyValues(reach)
        remembered = await _remembered(key_values, COORDINATORS, decision.query)
        appointed = {name for name in (remembered, *known.values()) if name is not None}
        if len(appointed) > 1:
            raise CommitError(
                f"brokers name several coordinators of query {decision.query!r}: "
                f"{', '.join(sorted(appointed))}",
                hint="two first runs of one query overlapped; start it with a new checkpoint",
            )
        coordinator = next(iter(appointed), None) or min(known)
        if not appointed:
            # Later batches of a query that no broker knows are evidence of a loss.
            await key_values.put(FIRST_BATCHES, decision.query, str(decision.batch))
        if remembered is None:
            await key_values.put(COORDINATORS, decision.query, coordinator)
        # Invariant: every driver asks in the order of names, so that of two that appoint
        # concurrently one is first everywhere.
        for name in sorted(known):
            if known[name] is None:
                kept = await self._appoint(reach, masters[name], decision.query, coordinator)
                assert kept is not None
                coordinator = kept
        return coordinator

    async def _appoint(
        self, reach: Reach, address: str, query: str, candidate: str | None
    ) -> str | None:
        reply = await reach.ask(address, AppointCoordinator(query=query, candidate=candidate))
        return CoordinatorReply.decode(reply.fields).coordinator

    async def _master(self, queue: MessageQueue) -> str:
        routes = self._running().routes
        address = routes.master_of(queue.broker_name)
        if address is None:
            try:
                await routes.refresh(queue.topic)
            except RouteNotFoundError:
                # The first rows create the topic, on the brokers of the template topic.
                await routes.publishing(queue.topic, timeout_ms=_CALL_MS_MAX)
            address = routes.master_of(queue.broker_name)
        if address is None:
            raise BrokerUnknownError(queue.broker_name, topic=queue.topic)
        return address

    async def _look_for_master(self, queue: MessageQueue, error: OrbitError) -> None:
        """Look up the route again after a failure that may mean that a broker was replaced."""
        if isinstance(error, RemoteError) and error.code != ResponseCode.SERVICE_NOT_AVAILABLE:
            return
        # The next attempt reports what is wrong.
        with suppress(OrbitError):
            await self._running().routes.refresh(queue.topic)

    async def _retry(self, ask: Callable[[float], Awaitable[T]], end_ms: float) -> T:
        """Ask until it succeeds; raises a failure that is final, or the last one."""
        while True:
            left_ms = max(end_ms - self._clock.monotonic_ms(), 1.0)
            try:
                return await ask(min(left_ms, _CALL_MS_MAX))
            except OrbitError as error:
                if not _is_temporary(error) or self._clock.monotonic_ms() + _PAUSE_MS >= end_ms:
                    raise
            await self._clock.sleep_ms(_PAUSE_MS)


async def _resolve(done: asyncio.Future[T], work: Awaitable[T]) -> None:
    """Do work, and put its result or error into a future."""
    try:
        result = await work
    except Exception as error:  # noqa: BLE001  # it goes to the future
        if not done.done():
            done.set_exception(error)
    except asyncio.CancelledError:
        done.cancel()
        raise
    else:
        if not done.done():
            done.set_result(result)


async def _first_batch(reach: Reach, query: str) -> int | None:
    """The first batch ever decided for a query according to the name servers."""
    remembered = await _remembered(KeyValues(reach), FIRST_BATCHES, query)
    return int(remembered) if remembered is not None and remembered.isdecimal() else None


async def _remembered(key_values: KeyValues, namespace: str, query: str) -> str | None:
    """What the name servers have recorded of a query; None if nothing."""
    try:
        return await key_values.get(namespace, query)
    except RemoteError as error:
        if error.code != ResponseCode.QUERY_NOT_FOUND:
            raise
        return None


def _is_temporary(error: OrbitError) -> bool:
    """Whether a retry may succeed: a broker that is down may come back."""
    if isinstance(error, RemoteError):
        return error.retryable or error.code in _RETRIED_CODES
    return error.retryable or isinstance(error, ClusterMissingError)
