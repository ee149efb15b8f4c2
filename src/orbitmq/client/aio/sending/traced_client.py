"""What producers and consumers share: the writer of their traces, if any."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from orbitmq.client.aio.instance.client_lifecycle import ClientLifecycle
from orbitmq.client.aio.sending.trace_writer import TraceCounts, TraceWriter

if TYPE_CHECKING:
    from orbitmq.client.options import TracedOptions
    from orbitmq.clock import Clock
    from orbitmq.transport.hooks import RpcHook


class TracedClient(ClientLifecycle):
    """A client that may write traces; `_open` starts them and `_close` stops them."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self._tracing: TraceWriter | None = None

    @property
    def trace_counts(self) -> TraceCounts | None:
        """What became of its trace records; None without `trace`."""
        return None if self._tracing is None else self._tracing.counts

    async def _start_tracing(
        self, group: str, options: TracedOptions, *, rpc_hooks: Sequence[RpcHook], clock: Clock
    ) -> TraceWriter | None:
        """Start to write traces, if the options ask for it."""
        if options.trace:
            self._tracing = TraceWriter(group, options, rpc_hooks=rpc_hooks, clock=clock)
            await self._tracing.start()
        return self._tracing

    async def _stop_tracing(self) -> None:
        if self._tracing is not None:
            await self._tracing.stop()
