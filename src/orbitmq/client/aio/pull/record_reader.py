"""Reads ranges of queues in bulk, as stored records.

    async with RecordReader(namesrv="127.0.0.1:9876") as reader:
        for queue in await reader.queues("orders"):
            end = await reader.max_offset(queue)
            async for run in reader.read([(queue, 0, end)]):
                ...  # run.records: stored records, back to back

It joins no group, commits nothing and does not wait for messages: it reads up to ends that the
caller knows. Several pulls are in flight at a time; their results come in order.

Threads: the event loop it was started on.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from orbitmq import java_json
from orbitmq.client.aio.instance.broker_calls import PULL_TIMEOUT_MS, PullStatus
from orbitmq.client.aio.instance.instances import acquire, with_own_instance
from orbitmq.client.aio.instance.read_targets import ReadTarget, ReadTargets
from orbitmq.client.aio.pull.queue_lookups import QueueLookups
from orbitmq.client.core.consuming.read_pace import ReadPace
from orbitmq.client.core.namespaces import unwrap, wrap
from orbitmq.client.core.subscriptions import Expression, subscription_of
from orbitmq.client.keywords import ClientKeywords, options_of
from orbitmq.client.options import ClientOptions
from orbitmq.clock import SystemClock
from orbitmq.errors import (
    OrbitError,
    ProtocolError,
    QueueReadError,
    TopicBrokersMissingError,
)
from orbitmq.model.names import TOOLS_GROUP, check_group
from orbitmq.model.routes import MASTER_ID
from orbitmq.model.subscriptions import EVERYTHING
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.pulling import PullFlag, PullMessages
from orbitmq.protocol.requests.routing import ListTopics, TopicList
from orbitmq.record.layout import QUEUE_OFFSET_AT

if TYPE_CHECKING:
    from typing import Unpack

    from orbitmq.client.aio.instance.broker_calls import Pulled
    from orbitmq.client.core.topic_routes import MissingQueues
    from orbitmq.clock import Clock
    from orbitmq.model.queues import MessageQueue
    from orbitmq.model.subscriptions import Subscription

log = logging.getLogger(__name__)

PULL_BYTES_MAX: Final = 2 * 1024 * 1024
PULLS_AHEAD: Final = 4
RETRIES: Final = 5
RETRY_PAUSE_MS: Final = 1_000
# Compat: RocketMQ's brokers allocate memory for as many messages as a pull asks for.
_MESSAGES_MAX: Final = 1_024
_ASKED_AT_ONCE: Final = 64

_SIZE: Final = struct.Struct(">I")
_QUEUE_OFFSET: Final = struct.Struct(">q")

T = TypeVar("T")
Range = tuple["MessageQueue", int, int]


class RecordRun(NamedTuple):
    """Part of a range: the records of one pull, or a gap where they are lost."""

    queue: MessageQueue
    # The offsets covered, without `end`.
    start: int
    end: int
    # Back to back; fewer than offsets if a filter left some out.
    records: bytes
    # Whether all of them were deleted, or are past the end of the queue.
    is_lost: bool = False


class TopicLook(NamedTuple):
    """The queues of a topic: those that can be read, and those whose broker is missing."""

    present: list[MessageQueue]
    missing: list[MissingQueues]


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Which messages of ranges are read, and how much of each."""

    expression: Expression
    with_bodies: bool


@dataclass(slots=True)
class _Window:
    """Part of a range whose pull is in flight."""

    queue: MessageQueue
    end: int
    pull: asyncio.Task[RecordRun]


class RecordReader(QueueLookups):
    """Reads ranges of queues in bulk."""

    def __init__(
        self,
        *,
        group: str = TOOLS_GROUP,
        pull_bytes_max: int = PULL_BYTES_MAX,
        pulls_ahead: int = PULLS_AHEAD,
        pull_timeout_ms: float = PULL_TIMEOUT_MS,
        retries: int = RETRIES,
        retry_pause_ms: float = RETRY_PAUSE_MS,
        clock: Clock | None = None,
        **options: Unpack[ClientKeywords],
    ) -> None:
        """Make a reader; `start` connects it.

        Args:
            group: the group named in pulls, for clusters that check it. Do not use the group of
                real consumers: a broker reports a reset offset only to the first pull of a group.
            pull_bytes_max: bytes that a pull asks OrbitMQ's brokers for; other brokers have their
                own limits.
            pulls_ahead: how many large replies may be in flight or wait to be taken.
            pull_timeout_ms: longest wait for a reply.
            retries: how often to retry a failed pull.
            retry_pause_ms: pause before each retry.
            clock: the source of time.
            options: see `ClientOptions`.
        """
        super().__init__("the record reader")
        check_group(group)
        self._clock = clock or SystemClock()
        self._options = with_own_instance(options_of(ClientOptions, options), self._clock)
        self._namespace = self._options.namespace
        self._group = group
        self._pull_bytes_max = pull_bytes_max
        self._pulls_ahead = pulls_ahead
        self._pull_timeout_ms = pull_timeout_ms
        self._retries = retries
        self._retry_pause_ms = retry_pause_ms

    # --- life ---------------------------------------------------------------------------------

    async def _open(self) -> None:
        # Connections open with the first request.
        self._instance = await acquire(self._options, clock=self._clock)
        self._targets = ReadTargets(self._instance.routes)

    async def _close(self) -> None:
        """Do nothing: no task runs in the background; pending reads fail."""

    # --- lookups ------------------------------------------------------------------------------

    async def topics(self) -> list[str]:
        """List every topic of the cluster, system topics and those of missing brokers included."""
        reply = await self._running().name_servers.ask(
            ListTopics(with_missing_brokers=True), timeout_ms=self._options.call_timeout_ms
        )
        listed = java_json.decode(reply.body, TopicList)
        found = [*listed.topics, *(listed.missing_topics or ())]
        if self._namespace:
            # Unwrapping changes only the names in the namespace.
            outer = {name: unwrap(self._namespace, name) for name in found}
            return sorted(name for inner, name in outer.items() if name != inner)
        return sorted(found)

    async def server_names(self) -> set[str]:
        """List the names of all clusters and brokers; topics named like these are the brokers'."""
        view = await self._running().name_servers.cluster_view()
        missing = view.missing_brokers or ()
        return {
            *view.brokers,
            *view.clusters,
            *(one.name for one in missing),
            *(one.cluster for one in missing),
        }

    async def live_brokers(self) -> set[str]:
        """List the names of the brokers that are registered now."""
        return set((await self._running().name_servers.cluster_view()).brokers)

    async def present_queues(self, topic: str) -> list[MessageQueue]:
        """List the queues of a topic with a fresh route from the name server."""
        await self._running().routes.refresh(wrap(self._namespace, topic))
        return await self.queues(topic)

    async def look_up(self, topic: str, *, everywhere: bool = False) -> TopicLook:
        """List the queues of a topic with a fresh route, and those whose broker is missing.

        The name server in use is asked, or if `everywhere` all of them.
        """
        wrapped = wrap(self._namespace, topic)
        instance = self._running()
        present: list[MessageQueue] = []
        with suppress(TopicBrokersMissingError):
            present = await self.present_queues(topic)
            if not everywhere or len(instance.name_servers.addresses) == 1:
                return TopicLook(present, self._outer(instance.routes.cached_missing(wrapped)))
        return TopicLook(present, await self.missing_queues(topic))

    async def min_offsets(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        """Return the offset of the oldest message of each queue."""
        return await _for_each(queues, self.min_offset)

    async def max_offsets(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        """Return the offset that the next message of each queue will have."""
        return await _for_each(queues, self.max_offset)

    async def offsets_for_times(
        self, times_ms: Mapping[MessageQueue, int]
    ) -> dict[MessageQueue, int]:
        """Return for each queue the offset of the first message stored at its time or later."""
        return await _for_each(times_ms, lambda queue: self.offset_for_time(queue, times_ms[queue]))

    async def slave_queues(self, queues: Iterable[MessageQueue]) -> set[MessageQueue]:
        """Return those of these queues that only slaves serve now, which may lag."""
        routes = self._running().routes
        return {
            queue
            for queue in queues
            if (found := routes.address_of(queue.broker_name, MASTER_ID)) is not None and found[1]
        }

    # --- reading ------------------------------------------------------------------------------

    async def read(
        self,
        ranges: Iterable[Range],
        expression: Expression = EVERYTHING,
        *,
        with_bodies: bool = True,
    ) -> AsyncGenerator[RecordRun, None]:
        """Read ranges of queues in order; their ends must exist already.

        The broker filters by the hash of a tag, which two tags may share, so a caller that
        filters by tags has to check them again. Without bodies, OrbitMQ's brokers send records as
        if their bodies were empty; others send them all the same.
        """
        self._running()
        wanted = _Wanted(expression, with_bodies=with_bodies)
        todo = deque((queue, start, end) for queue, start, end in ranges if start < end)
        pace = ReadPace(
            pulls_ahead=self._pulls_ahead,
            pull_bytes_max=self._pull_bytes_max,
            is_filtered=expression != EVERYTHING,
        )
        pending: deque[_Window] = deque()
        try:
            while todo or pending:
                while todo and len(pending) < pace.pulls:
                    queue, start, end = todo.popleft()
                    window_end = min(end, start + pace.window)
                    if window_end < end:
                        todo.appendleft((queue, window_end, end))
                    pending.append(self._start_pull(queue, start, window_end, wanted))
                window = pending[0]
                run = await window.pull
                pending.popleft()
                pace.note(
                    asked=window.end - run.start,
                    covered=run.end - run.start,
                    reply_bytes=len(run.records),
                )
                if run.end < window.end:
                    if pending:
                        pending.appendleft(
                            self._start_pull(window.queue, run.end, window.end, wanted)
                        )
                    else:
                        todo.appendleft((window.queue, run.end, window.end))
                yield run
        finally:
            for window in pending:
                window.pull.cancel()
            await asyncio.gather(*(window.pull for window in pending), return_exceptions=True)

    async def runs_at(self, offsets: Mapping[MessageQueue, int]) -> dict[MessageQueue, RecordRun]:
        """Read one message of each queue, all at once; without bodies, where the broker can."""
        self._running()
        wanted = _Wanted(EVERYTHING, with_bodies=False)
        return await _for_each(
            offsets, lambda queue: self._pull(queue, offsets[queue], offsets[queue] + 1, wanted)
        )

    def _start_pull(self, queue: MessageQueue, start: int, end: int, wanted: _Wanted) -> _Window:
        pull = self._pull(queue, start, end, wanted)
        name = f"pull of {queue.topic}"
        return _Window(queue, end, asyncio.get_running_loop().create_task(pull, name=name))

    async def _pull(self, queue: MessageQueue, start: int, end: int, wanted: _Wanted) -> RecordRun:
        """Read as much of a window as one reply holds, with retries."""
        inner = self._with_namespace(queue)
        expression = wanted.expression
        subscription = subscription_of(inner.topic, expression, version_ms=self._clock.now_ms())
        left = self._retries
        while True:
            has_other = False
            target: ReadTarget | None = None
            try:
                target = await self._targets.choose(inner)
                pulled = await self._ask(
                    target, inner, subscription, start, end, with_bodies=wanted.with_bodies
                )
            except OrbitError as error:
                if not error.retryable or left == 0:
                    raise self._failure(
                        queue, start, error, tries=self._retries - left + 1
                    ) from error
                log.warning("pull failed queue=%s offset=%d reason=%s", queue, start, error)
                if target is not None:
                    has_other = await self._targets.note_failure(inner, target, error)
            else:
                run = _run_of(queue, start, end, pulled, is_filtered=expression != EVERYTHING)
                if run is not None and not (run.is_lost and target.is_slave):
                    # A starting broker may not see its end yet: retry that.
                    if not run.is_lost or pulled.min_offset > start or left == 0:
                        return run
                elif left == 0:
                    why = _no_progress(target, pulled)
                    raise self._failure(queue, start, why, tries=self._retries + 1)
                await self._targets.note_reply(inner, target, start, pulled)
            left -= 1
            if has_other:
                continue
            self._targets.forget(inner)
            await self._clock.sleep_ms(self._retry_pause_ms)
            with suppress(OrbitError):
                await self._running().routes.refresh(inner.topic)

    async def _ask(
        self,
        target: ReadTarget,
        queue: MessageQueue,
        subscription: Subscription,
        start: int,
        end: int,
        *,
        with_bodies: bool,
    ) -> Pulled:
        header = PullMessages(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=Long(start),
            messages_max=min(end - start, _MESSAGES_MAX),
            system_flag=int(PullFlag.SUBSCRIPTION),
            commit_offset=Long(0),
            suspend_timeout_ms=Long(0),
            expression=subscription.expression,
            # Compat: brokers compile the tags of each request, and look up only SQL conditions.
            subscription_version=Long(0 if subscription.is_by_tag else subscription.version),
            expression_type=subscription.expression_type,
            broker_name=queue.broker_name,
            bulk_count=end - start,
            bulk_bytes=self._pull_bytes_max,
            bulk_bodies=None if with_bodies else 0,
        )
        pulled = await self._running().brokers.pull(
            target.address, header, timeout_ms=self._pull_timeout_ms
        )
        if pulled.status is PullStatus.FOUND:
            await self._targets.note_reply(queue, target, start, pulled)
        return pulled

    def _failure(
        self, queue: MessageQueue, offset: int, error: OrbitError, *, tries: int
    ) -> QueueReadError:
        times = "1 try" if tries == 1 else f"{tries} tries"
        return QueueReadError(
            queue.topic, queue.broker_name, queue.queue_id, offset=offset, why=f"{error} ({times})"
        )


async def _for_each(
    queues: Iterable[MessageQueue], ask: Callable[[MessageQueue], Coroutine[Any, Any, T]]
) -> dict[MessageQueue, T]:
    """Ask the same about many queues, `_ASKED_AT_ONCE` at a time."""
    ordered = list(queues)
    found: dict[MessageQueue, T] = {}
    for start in range(0, len(ordered), _ASKED_AT_ONCE):
        part = ordered[start : start + _ASKED_AT_ONCE]
        found |= zip(part, await asyncio.gather(*map(ask, part)), strict=True)
    return found


def _run_of(
    queue: MessageQueue, start: int, end: int, pulled: Pulled, *, is_filtered: bool
) -> RecordRun | None:
    """Interpret a reply for a window; None if the pull must be retried."""
    if pulled.status is PullStatus.FOUND:
        if pulled.next_offset <= start:
            return None
        records = pulled.body
        if pulled.next_offset > end:
            records = _records_before(records, end)
        return RecordRun(queue, start, min(pulled.next_offset, end), records)
    if pulled.status is PullStatus.OFFSET_ILLEGAL:
        lost_to = min(pulled.min_offset, end) if pulled.min_offset > start else end
        return RecordRun(queue, start, lost_to, b"", is_lost=True)
    if pulled.next_offset > start:
        # Without a filter, the skipped messages are deleted or unreadable.
        is_lost = not is_filtered or pulled.status is PullStatus.NO_NEW
        return RecordRun(queue, start, min(pulled.next_offset, end), b"", is_lost=is_lost)
    if pulled.status is PullStatus.NO_NEW:
        return RecordRun(queue, start, end, b"", is_lost=True)
    return None


def _no_progress(target: ReadTarget, pulled: Pulled) -> ProtocolError:
    if target.is_slave:
        return ProtocolError(
            f"its master is away, and the slave at {target.address} has only messages "
            f"{pulled.min_offset} to {pulled.max_offset - 1}",
            hint="start the master, or wait until the slave has caught up",
        )
    return ProtocolError(f"its replies lead back to offset {pulled.next_offset}")


def _records_before(records: bytes, end: int) -> bytes:
    """Drop the records from queue offset `end` on: with a filter, the broker reads past it."""
    at = 0
    while at < len(records):
        (queue_offset,) = _QUEUE_OFFSET.unpack_from(records, at + QUEUE_OFFSET_AT)
        if queue_offset >= end:
            break
        at += _SIZE.unpack_from(records, at)[0]
    return records[:at]
