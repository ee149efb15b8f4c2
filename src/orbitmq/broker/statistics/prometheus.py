"""Exports the metrics of a broker to Prometheus, over HTTP.

Threads: the HTTP server has its own. A scrape copies what it needs on the event loop, and does the
rest in the server's thread; between scrapes nothing runs.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.registry import Collector

from orbitmq.disk import off_loop
from orbitmq.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from threading import Thread
    from wsgiref.simple_server import WSGIServer

    from prometheus_client.core import Metric

    from orbitmq.broker.statistics.metrics import Metrics, MetricsSnapshot

log = logging.getLogger(__name__)

_COPY_TIMEOUT_SECONDS: Final = 10


class Prometheus:
    """The HTTP server that Prometheus scrapes."""

    def __init__(self, metrics: Metrics, *, host: str, port: int) -> None:
        self._metrics = metrics
        self._host = host
        self.port = port
        self._served: tuple[WSGIServer, Thread] | None = None

    async def start(self) -> None:
        """Start listening."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_OnScrape(self._metrics, asyncio.get_running_loop()))
        try:
            server, thread = await off_loop(
                start_http_server, self.port, addr=self._host, registry=registry
            )
        except OSError as error:
            raise SettingsError(
                f"cannot export metrics at {self._host}:{self.port}: {error.strerror}",
                hint="set metricsPromExporterPort or metricsPromExporterHost to a free address",
            ) from error
        self._served = server, thread
        self.port = server.server_port
        log.info("metrics exported host=%s port=%d", self._host, self.port)

    async def stop(self) -> None:
        """Stop listening."""
        if self._served is not None:
            server, thread = self._served
            self._served = None
            await off_loop(_stop, server, thread)


def _stop(server: WSGIServer, thread: Thread) -> None:
    server.shutdown()
    server.server_close()
    thread.join()


class _OnScrape(Collector):
    """Makes the metrics at each scrape."""

    def __init__(self, metrics: Metrics, loop: asyncio.AbstractEventLoop) -> None:
        self._metrics = metrics
        self._loop = loop

    def describe(self) -> Iterable[Metric]:
        """Return nothing: otherwise the registry would collect everything at start."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """Copy on the event loop, then make the metrics here."""
        copying = asyncio.run_coroutine_threadsafe(self._snapshot(), self._loop)
        return self._metrics.families(copying.result(_COPY_TIMEOUT_SECONDS))

    async def _snapshot(self) -> MetricsSnapshot:
        return self._metrics.snapshot()
