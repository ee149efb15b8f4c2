"""The name server: builds, starts and stops its parts."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from orbitmq.clock import SystemClock
from orbitmq.errors import EpochRefusedError, OrbitError
from orbitmq.lifecycle import Periodic
from orbitmq.nameserver.broker_registry import BrokerRegistry
from orbitmq.nameserver.config import NameServerConfig
from orbitmq.nameserver.handlers import Handlers
from orbitmq.nameserver.key_values import KeyValueStore
from orbitmq.nameserver.liveness import Liveness
from orbitmq.nameserver.master_epochs import FILE_NAME as EPOCHS_FILE_NAME
from orbitmq.nameserver.master_epochs import MasterEpochs
from orbitmq.nameserver.missing_brokers import MissingBrokers
from orbitmq.nameserver.route_view import RouteView
from orbitmq.protocol.codes import ResponseCode
from orbitmq.settings import ServerRole, Settings
from orbitmq.transport.addresses import format_address
from orbitmq.transport.config import ServerConfig, TlsServerConfig
from orbitmq.transport.rpc_server import RpcServer

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from orbitmq.clock import Clock

log = logging.getLogger(__name__)

DEFAULT_PORT: Final = 9876


def load_settings(
    *,
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, str] | None = None,
) -> Settings:
    """Read the options of a name server from all sources."""
    return Settings.load(
        NameServerConfig,
        ServerConfig(listen_port=DEFAULT_PORT),
        TlsServerConfig,
        file=file,
        environment=environment,
        flags=flags,
        role=ServerRole.NAME_SERVER,
    )


class NameServer:
    """One name server; name servers do not talk to each other."""

    def __init__(
        self, settings: Settings, *, clock: Clock | None = None, config_file: Path | None = None
    ) -> None:
        clock = clock or SystemClock()
        config = settings.of(NameServerConfig)
        self._epochs = MasterEpochs(_epochs_path(config), groups_max=config.epochs_max)
        registry = BrokerRegistry(
            brokers_max=config.brokers_max,
            topics_max=config.topics_max,
            routes_max=config.routes_max,
            missing=MissingBrokers(
                brokers_max=config.missing_brokers_max,
                topic_bytes_max=config.missing_brokers_bytes_max,
                missing_ms_max=config.missing_broker_hours_max * 3_600_000,
                clock=clock,
            ),
            epoch_of=self._epochs.of,
        )
        self._epochs.on_change = registry.note_change
        self.routes = RouteView(registry, epochs=self._epochs.all)
        self.key_values = KeyValueStore(
            config.key_values_path.expanduser(),
            keys_max=config.key_values_max,
            bytes_max=config.key_values_bytes_max,
        )
        self._liveness = Liveness(registry, scan_interval_ms=config.scan_interval_ms, clock=clock)
        self._key_value_listing = Periodic(
            "key value listing",
            config.key_values_print_minutes * 60_000,
            self.key_values.log_all,
            clock,
        )
        handlers = Handlers(
            settings=settings,
            config_path=config_file or config.config_path.expanduser(),
            registry=registry,
            routes=self.routes,
            key_values=self.key_values,
            epochs=self._epochs,
            clock=clock,
        )
        self.server = RpcServer(
            handlers.by_code(),
            code_of=_code_of,
            config=settings.of(ServerConfig),
            tls=settings.of(TlsServerConfig),
            clock=clock,
            listener=self._liveness,
        )
        self._bind_address = settings.of(ServerConfig).bind_address

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self.server.port

    async def start(self) -> None:
        """Load the key values and epochs, then serve."""
        await self.key_values.load()
        await self._epochs.load()
        await self.server.start()
        self._liveness.start()
        self._key_value_listing.start()
        address = format_address((self._bind_address, self.port))
        log.info("name server started address=%s", address)

    async def stop(self) -> None:
        """Finish requests in flight, then stop."""
        await self._key_value_listing.stop()
        await self._liveness.stop()
        await self.server.stop()
        log.info("name server stopped")


def _code_of(error: OrbitError) -> int:
    """The failure code that reports an error; all but one are SYSTEM_ERROR, as in RocketMQ."""
    # A replaced master must not take it for a passing problem of the name server.
    if isinstance(error, EpochRefusedError):
        return ResponseCode.ILLEGAL_OPERATION
    return ResponseCode.SYSTEM_ERROR


def _epochs_path(config: NameServerConfig) -> Path:
    path = config.epochs_path or config.key_values_path.with_name(EPOCHS_FILE_NAME)
    return path.expanduser()
