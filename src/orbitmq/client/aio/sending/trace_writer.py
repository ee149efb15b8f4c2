"""The trace writer: sends the trace records of one client, in batches.

Records wait in memory until there are enough for a message, or until the interval is over. A record
that finds too many waiting is dropped and counted: tracing never delays or fails anything else.

Threads: `add` from any; the rest on one event loop.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import logging
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from orbitmq.client.aio.instance import instances
from orbitmq.client.aio.sending.attempts import SendRequest
from orbitmq.client.aio.sending.send_hooks import SendHooks
from orbitmq.client.aio.sending.sender import Sender
from orbitmq.client.core import namespaces
from orbitmq.client.core.sending.send_plan import SendMode
from orbitmq.client.core.tracing.trace_messages import TraceBatch, batches_of, missing_topic_hint
from orbitmq.client.options import ClientOptions, ProducerOptions, TracedOptions
from orbitmq.clock import time_limit
from orbitmq.errors import OrbitError, RemoteError, SendError
from orbitmq.lifecycle import OwnedTasks, Periodic
from orbitmq.model.messages import Message
from orbitmq.model.names import GROUP_LENGTH_MAX
from orbitmq.protocol.codes import ResponseCode

if TYPE_CHECKING:
    from orbitmq.client.aio.instance.client_instance import ClientInstance
    from orbitmq.client.core.tracing.trace_records import TraceRecord
    from orbitmq.clock import Clock
    from orbitmq.transport.hooks import RpcHook

log = logging.getLogger(__name__)

# Trace messages that are sent concurrently.
_IN_FLIGHT_MAX: Final = 4
# Compat: Java's timeout of a trace message.
_SEND_MS: Final = 5_000
# After a failure, nothing is sent for this long: a missing topic must not cost a lookup a batch.
_PAUSE_MS: Final = 5_000
_GROUP_PREFIX: Final = "_INNER_TRACE_PRODUCER"
_numbers: Final = itertools.count(1)


@dataclasses.dataclass(slots=True)
class TraceCounts:
    """What became of the trace records of a client."""

    written: int = 0
    # Too many were waiting.
    dropped: int = 0
    # No broker took them.
    failed: int = 0


class TraceWriter:
    """Sends the trace records of one client."""

    def __init__(
        self,
        group: str,
        options: TracedOptions,
        *,
        rpc_hooks: Sequence[RpcHook],
        clock: Clock,
    ) -> None:
        """Make a writer; `start` connects it.

        Args:
            group: the group of the client that is traced.
            options: the options of that client, whose connections the writer shares.
            rpc_hooks: called before and after each request to a server.
            clock: the source of time.
        """
        self.topic = options.trace_topic
        self.counts = TraceCounts()
        bare = namespaces.unwrap(options.namespace, group)
        self._group = f"{_GROUP_PREFIX}-{next(_numbers)}-{bare}"[:GROUP_LENGTH_MAX]
        self._options = options
        self._rpc_hooks = rpc_hooks
        self._clock = clock
        self._pending: deque[TraceRecord] = deque()
        self._loop = asyncio.get_running_loop()
        self._flushing = OwnedTasks()
        # Whether a flush is about to start: one wakes the loop for a whole batch.
        self._wanted = False
        self._paused_until_ms = 0.0
        self._is_failing = False
        # Whether records were dropped, which is logged once.
        self._has_dropped = False
        self._is_closed = False
        self._instance: ClientInstance | None = None
        self._sender: Sender | None = None
        self._rounds = Periodic("traces", options.trace_interval_ms, self._flush_round, clock)

    async def start(self) -> None:
        """Share the connections of the client, and begin to send."""
        self._instance = await instances.acquire(
            self._options, rpc_hooks=self._rpc_hooks, clock=self._clock
        )
        shared = {
            row.name: getattr(self._options, row.name) for row in dataclasses.fields(ClientOptions)
        }
        # Compat: the trace topic is outside all namespaces.
        shared["namespace"] = ""
        self._sender = Sender(
            self._instance,
            group=self._group,
            options=ProducerOptions(**shared, send_timeout_ms=_SEND_MS),
            hooks=SendHooks(()),
        )
        self._rounds.start()

    async def stop(self) -> None:
        """Send what is waiting, for up to `trace_close_ms`."""
        self._is_closed = True
        await self._rounds.stop()
        try:
            async with time_limit(self._clock, self._options.trace_close_ms):
                await self._flushing.all_done()
                # However the last send ended: there is no later one.
                self._paused_until_ms = 0.0
                await self._flush()
        except TimeoutError:
            log.warning("not all traces were sent in time group=%s", self._group)
        finally:
            await self._flushing.cancel()
            self.counts.dropped += len(self._pending)
            self._pending.clear()
            if self._sender is not None:
                await self._sender.all_ended()
                await self._sender.stop()
            if self._instance is not None:
                await instances.release(self._instance)

    def add(self, record: TraceRecord) -> None:
        """Have a record sent soon; from any thread."""
        pending = self._pending
        if self._is_closed or len(pending) >= self._options.trace_pending_max:
            self.counts.dropped += 1
            if not self._has_dropped and not self._is_closed:
                self._has_dropped = True
                log.warning(
                    "trace records are dropped, as too many wait group=%s limit=%d",
                    self._group,
                    self._options.trace_pending_max,
                )
            return
        pending.append(record)
        if len(pending) >= self._options.trace_batch_size and not self._wanted:
            self._wanted = True
            self._wake()

    def _wake(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._start_flush)
        except RuntimeError:
            # The loop has ended, and the client with it.
            self._is_closed = True

    def _start_flush(self) -> None:
        if self._is_closed or len(self._flushing) or self._is_paused:
            self._wanted = False
            return
        self._flushing.start(self._flush(), name="traces")

    def _flush_round(self) -> None:
        """Flush what waited for the interval, although it is no whole batch."""
        if self._pending:
            self._start_flush()

    @property
    def _is_paused(self) -> bool:
        return self._clock.monotonic_ms() < self._paused_until_ms

    async def _flush(self) -> None:
        """Send everything that is waiting, a few messages at a time."""
        size = self._options.trace_batch_size
        try:
            while self._pending and not self._is_paused:
                count = min(len(self._pending), _IN_FLIGHT_MAX * size)
                records = [self._pending.popleft() for _ in range(count)]
                await asyncio.gather(*map(self._send, batches_of(records, count_max=size)))
        finally:
            self._wanted = False

    async def _send(self, batch: TraceBatch) -> None:
        assert self._sender is not None
        message = Message(self.topic, batch.body, keys=batch.keys)
        request = SendRequest(message, SendMode.AWAITED, _SEND_MS, None, None, None)
        try:
            await self._sender.send(request)
        except asyncio.CancelledError:
            self.counts.failed += batch.count
            raise
        except OrbitError as error:
            self.counts.failed += batch.count
            self._paused_until_ms = self._clock.monotonic_ms() + _PAUSE_MS
            self._log_failure(error)
        else:
            self.counts.written += batch.count
            if self._is_failing:
                self._is_failing = False
                log.info(
                    "traces are written again topic=%s lost=%d", self.topic, self.counts.failed
                )

    def _log_failure(self, error: OrbitError) -> None:
        """Log the first failure since the last success."""
        if self._is_failing:
            return
        self._is_failing = True
        if _is_missing_topic(error):
            log.warning(
                "no traces are written, as their topic is missing topic=%s group=%s (%s)",
                self.topic,
                self._group,
                missing_topic_hint(self.topic),
            )
        else:
            log.warning(
                "traces could not be written topic=%s group=%s reason=%s",
                self.topic,
                self._group,
                error,
            )


def _is_missing_topic(error: OrbitError) -> bool:
    """Whether no name server knows the topic, or no broker that should have it."""
    return isinstance(error, RemoteError | SendError) and error.code == ResponseCode.TOPIC_NOT_EXIST
