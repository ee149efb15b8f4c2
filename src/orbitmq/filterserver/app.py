"""The filter server as a whole: builds, starts and stops its parts."""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final

from orbitmq.clock import SystemClock
from orbitmq.filterserver.broker_link import BrokerLink
from orbitmq.filterserver.config import FilterServerConfig
from orbitmq.filterserver.failure_log import FailureLog
from orbitmq.filterserver.filter_classes import FilterClasses
from orbitmq.filterserver.handlers import FilterRequests
from orbitmq.filterserver.plugins import GROUP, installed_filters
from orbitmq.filterserver.workers import FilterWorkers
from orbitmq.lifecycle import Periodic, RunOnce
from orbitmq.settings import ServerRole, Settings
from orbitmq.transport.addresses import format_address, parse_address
from orbitmq.transport.config import ServerConfig, TlsServerConfig
from orbitmq.transport.local_machine import local_address
from orbitmq.transport.rpc_server import RpcServer

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from orbitmq.clock import Clock

log = logging.getLogger(__name__)

_UPKEEP_INTERVAL_MS: Final = 1000
_ALL_ADDRESSES: Final = frozenset({"", "0.0.0.0", "::"})  # noqa: S104  # compared, not bound to


def load_settings(
    *,
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, str] | None = None,
) -> Settings:
    """Load the options of a filter server from all sources."""
    return Settings.load(
        FilterServerConfig,
        ServerConfig,
        TlsServerConfig,
        file=file,
        environment=environment,
        flags=flags,
        role=ServerRole.FILTER_SERVER,
    )


class FilterServer:
    """One filter server, of one broker."""

    def __init__(self, settings: Settings, *, clock: Clock | None = None) -> None:
        clock = clock or SystemClock()
        config = settings.of(FilterServerConfig)
        server = settings.of(ServerConfig)
        # Fails on a mistake before anything is opened.
        parse_address(config.broker)
        self.workers = {
            name: FilterWorkers(name, config, clock=clock) for name in installed_filters()
        }
        self._state = RunOnce("the filter server")
        self._opened = AsyncExitStack()
        self._host = config.advertised_address or (
            local_address() if server.bind_address in _ALL_ADDRESSES else server.bind_address
        )
        self.broker = BrokerLink(config.broker, clock=clock)
        self.classes = FilterClasses(self.broker.subscription_of)
        self._requests = FilterRequests(
            broker=self.broker,
            classes=self.classes,
            workers=self.workers,
            failures=FailureLog(clock),
            clock=clock,
        )
        self.server = RpcServer(
            self._requests.by_code(),
            config=server,
            tls=settings.of(TlsServerConfig),
            clock=clock,
        )
        self._upkeep = Periodic("idle processes", _UPKEEP_INTERVAL_MS, self._end_idle, clock)

    @property
    def address(self) -> str:
        """Where consumers find it."""
        return format_address((self._host, self.server.port))

    async def start(self) -> None:
        """Listen, and register with the broker."""
        self._state.begin()
        try:
            await self._start()
        except BaseException:
            await self._opened.aclose()
            raise

    async def _start(self) -> None:
        # What is started here stops in reverse order, even if the start fails halfway.
        closing = self._opened
        for workers in self.workers.values():
            closing.push_async_callback(workers.stop)
        await self.server.start()
        closing.push_async_callback(self.server.stop)
        closing.push_async_callback(self.broker.stop)
        closing.callback(self._answer_held_pulls)
        self._upkeep.start()
        closing.push_async_callback(self._upkeep.stop)
        closing.push_async_callback(self.broker.end_registration)
        if not self.workers:
            log.warning("no filter is installed: every pull will fail entry_points=%s", GROUP)
        await self.broker.start(self.address)
        log.info(
            "filter server started address=%s broker=%s filters=%s",
            self.address,
            self.broker.broker,
            ",".join(sorted(self.workers)) or "none",
        )

    async def stop(self) -> None:
        """Leave the broker, answer the pulls in flight, and end all processes."""
        if not await self._state.begin_stop():
            return
        try:
            await self._opened.aclose()
        finally:
            self._state.end_stop()
            log.info("filter server stopped")

    def _answer_held_pulls(self) -> None:
        self._requests.is_stopping = True

    async def _end_idle(self) -> None:
        for workers in self.workers.values():
            await workers.end_idle()
