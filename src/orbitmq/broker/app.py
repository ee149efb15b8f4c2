"""The broker as a whole: opens its store, starts its parts and stops them."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack, ExitStack
from typing import TYPE_CHECKING, Final, Protocol

from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.parts import Parts
from orbitmq.broker.place import Place
from orbitmq.broker.ports import FAST_LANE
from orbitmq.broker.replication.assembly import Replication, check_role
from orbitmq.broker.replication.config import BrokerRole, ReplicationConfig
from orbitmq.broker.replication.epoch import Role
from orbitmq.broker.replication.reign import Reign
from orbitmq.broker.replication.timer_file import read_master_timers
from orbitmq.broker.serving import Serving
from orbitmq.broker.statistics.config import MetricsConfig
from orbitmq.broker.tables import BrokerTables
from orbitmq.clock import SystemClock
from orbitmq.disk import off_loop
from orbitmq.lifecycle import RunOnce
from orbitmq.model.queues import PhysicalOffset
from orbitmq.settings import ServerRole, Settings
from orbitmq.store.config import StoreConfig
from orbitmq.store.message_store import MessageStore
from orbitmq.store.opening.parts import OWN_FOLDER
from orbitmq.store.retention import RetentionConfig
from orbitmq.transport.config import ServerConfig, TlsServerConfig
from orbitmq.transport.local_machine import address_of, reserved_ports

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from orbitmq.clock import Clock
    from orbitmq.protocol.requests.registration import RegisterBroker

log = logging.getLogger(__name__)

DEFAULT_PORT: Final = 10911
OPTIONS_FILE: Final = "broker.properties"


def load_settings(
    *,
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, str] | None = None,
) -> Settings:
    """Load the options of a broker from all sources."""
    return Settings.load(
        BrokerConfig,
        MetricsConfig,
        StoreConfig,
        RetentionConfig,
        ReplicationConfig,
        ServerConfig(listen_port=DEFAULT_PORT),
        TlsServerConfig,
        file=file,
        environment=environment,
        flags=flags,
        role=ServerRole.BROKER,
    )


class Part(Protocol):
    """Something that runs while the broker does."""

    async def start(self) -> None:
        """Start it."""

    async def stop(self) -> None:
        """Stop it."""


class Broker:
    """One broker: a master, or a slave that copies one."""

    def __init__(
        self,
        settings: Settings,
        *,
        clock: Clock | None = None,
        config_file: Path | None = None,
        advertised_port: int | None = None,
        configured: Role | None = None,
    ) -> None:
        """Prepare a broker.

        Its role is that of the settings; `configured` is the one in the configuration, if a
        promotion gave it another.
        """
        self._settings = settings
        self._clock = clock or SystemClock()
        self._state = RunOnce("the broker")
        self._is_loaded = self._is_started = False
        self._opened = AsyncExitStack()
        self._early_parts: list[Part] = []
        config = settings.of(BrokerConfig)
        store_config = settings.of(StoreConfig)
        self.place = Place(settings, advertised_port)
        role = Role(config.broker_id, settings.of(ReplicationConfig).role)
        check_role(role.role, config.broker_id)
        self.reign = Reign(
            role, configured=configured or role, store_config=store_config, clock=self._clock
        )
        self._options_file = config_file or (
            config.config_path.expanduser()
            if config.config_path.name
            else store_config.root.expanduser() / "config" / OPTIONS_FILE
        )
        self.tables = BrokerTables(settings, self._clock)
        self.topics = self.tables.topics
        self.groups = self.tables.groups
        self.offsets = self.tables.offsets

    @property
    def address(self) -> str:
        """The host that clients connect to."""
        return self.place.host

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return self.place.port

    @property
    def advertised(self) -> str:
        """The address that clients connect to, with its port."""
        return self.place.advertised

    @property
    def identity(self) -> RegisterBroker:
        """What name servers are told of this broker."""
        return self.place.identity()

    def is_serving_as(self, role: str) -> bool:
        """Whether this broker runs in a role, and is not about to change it."""
        return (
            self._is_started
            and self.reign.role.role == role
            and not self.reign.restart_wanted.is_set()
        )

    async def start(self) -> None:
        """Open the store, load the tables, listen, and register."""
        self._state.begin()
        try:
            await self._start()
        except BaseException:
            await self._opened.aclose()
            raise

    async def _start(self) -> None:
        await self._open()
        is_master = not self.replication.is_slave
        is_newly_promoted = self.reign.is_newly_promoted(self.store)
        await self.tables.load(
            self.store,
            epoch=self.reign.epochs.epoch,
            is_slave=not is_master,
            is_newly_promoted=is_newly_promoted,
        )
        # A change that a slave was making must not replace what this broker writes in its next role.
        self._opened.push_async_callback(self.tables.archives.settled)
        self.parts = parts = Parts(
            settings=self._settings,
            place=self.place,
            tables=self.tables,
            store=self.store,
            replication=self.replication,
            reign=self.reign,
            options_file=self._options_file,
            clock=self._clock,
        )
        self.serving = Serving(parts)
        # What is started here stops in reverse order, even if the start fails halfway.
        closing = self._opened
        closing.push_async_callback(self.reign.stop)
        early = await closing.enter_async_context(AsyncExitStack())
        if is_master:
            # Readers of the last master may have seen the whole log of the promoted one.
            if self.replication.waits_for_slaves and not is_newly_promoted:
                await self._wait_for_slaves(early)
            await self.replication.begin()
            await self._load_services()
            self.serving.serve_all()
        self._is_loaded = True
        closing.push_async_callback(self.offsets.save)
        if is_master:
            closing.push_async_callback(parts.transactions.stop)
        closing.push_async_callback(parts.reads.all_done)
        for server in self.serving.servers:
            await self._start_part(server)
        if parts.prometheus is not None:
            await self._start_part(parts.prometheus)
        parts.flush_timeouts.start()
        closing.push_async_callback(parts.flush_timeouts.stop)
        # Sends that wait to be safe are answered before connections close.
        closing.push_async_callback(parts.confirmations.all_done)
        if is_master:
            self._start_deliveries()
        for periodic in parts.periodics:
            periodic.start()
            closing.push_async_callback(periodic.stop)
        closing.callback(parts.stop_accepting)
        await self._start_part(parts.rpc)
        parts.admission.is_open = True
        if self.replication.following is not None:
            self.replication.following.start()
            closing.push_async_callback(self.replication.following.stop)
        else:
            parts.exactly_once.deciding.start()
            closing.push_async_callback(parts.exactly_once.deciding.stop)
        await self._start_part(parts.registration)
        # What was started early stops with the rest.
        early.pop_all()
        self._is_started = True
        log.info(
            "broker started name=%s id=%d role=%s cluster=%s address=%s store=%s",
            self.place.name(),
            self.reign.role.broker_id,
            self.reign.role.role,
            self.identity.cluster_name,
            self.advertised,
            self._settings.of(StoreConfig).root,
        )

    async def _start_part(self, part: Part) -> None:
        """Start a part unless it runs already; from here on it stops with the broker."""
        self._opened.push_async_callback(part.stop)
        if part not in self._early_parts:
            await part.start()

    async def _wait_for_slaves(self, early: AsyncExitStack) -> None:
        """Let slaves find this sync master, and have the end of its log, before it takes messages.

        It is read meanwhile, up to what was visible before.
        """
        parts: list[Part] = [*self.serving.servers, self.parts.rpc, self.parts.registration]
        for part in parts:
            early.push_async_callback(part.stop)
            self._early_parts.append(part)
            await part.start()
        await self.replication.wait_for_slaves()

    async def _open(self) -> None:
        """Open the store, and let slaves connect."""
        server = self._settings.of(ServerConfig)
        with ExitStack() as reservation:
            if not server.listen_port:
                # While the store is opened, another broker that looks for a port must not take
                # these.
                reservation.enter_context(
                    reserved_ports(
                        server.bind_address,
                        self.port,
                        self.port + FAST_LANE,
                        self.place.replication_port,
                    )
                )
            # They say how far the log was copied from a master, which matters as it is opened.
            await self.reign.epochs.load()
            self.store = await self._open_store_off_loop()
            self._opened.push_async_callback(off_loop, self.store.close)
        await self.reign.load()
        self.replication = Replication(
            config=lambda: self._settings.of(ReplicationConfig),
            identity=self.place.identity,
            epochs=self.reign.epochs,
            store=self.store,
            bind_address=server.bind_address,
            port=self.place.replication_port,
            clock=self._clock,
        )
        self._opened.push_async_callback(self.replication.stop)
        self.replication.start()

    async def _load_services(self) -> None:
        """Load what only a master does: exactly-once writes, timers, transactions."""
        parts = self.parts
        await parts.exactly_once.load()
        has_timers = parts.store_config().timers_enable
        folder = parts.store_config().root.expanduser() / OWN_FOLDER
        official = await off_loop(read_master_timers, folder)
        copied = official.progress if official is not None else None
        await parts.timers.open(copied, is_on=has_timers)
        if has_timers:
            await parts.pending.recover()
        await parts.transactions.load()

    def _start_deliveries(self) -> None:
        """Start to deliver delayed messages and timers."""
        self.parts.delay.start()
        self._opened.push_async_callback(self.parts.delay.stop)
        if self.parts.store_config().timers_enable:
            self.parts.timers.start()
        self._opened.push_async_callback(self.parts.timers.stop)

    async def stop(self) -> None:
        """Unregister, finish requests in flight, and close the store."""
        if not await self._state.begin_stop():
            return
        try:
            await self._opened.aclose()
        finally:
            self._state.end_stop()
            log.info("broker stopped name=%s", self.place.name())

    async def abort(self) -> None:
        """Drop all connections at once, as a crash would; `stop` is still needed.

        The broker does not unregister then.
        """
        self.parts.registration.abandon()
        for server in self.serving.servers:
            await server.abort()

    async def _open_store_off_loop(self) -> MessageStore:
        opening = asyncio.ensure_future(off_loop(self._open_store))
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            # The thread continues regardless, and the store it opens must be closed.
            await off_loop((await opening).close)
            raise

    def _open_store(self) -> MessageStore:
        store = MessageStore(
            self._settings.of(StoreConfig),
            retention=self._settings.of(RetentionConfig),
            clock=self._clock,
            store_host=(address_of(self.address), self.port),
            # What readers may see is up to the master, or to the slaves.
            held=self.reign.role.role is not BrokerRole.ASYNC_MASTER,
            is_copy=self.reign.role.role is BrokerRole.SLAVE,
            copied_until=self.reign.copied_until,
        )
        # What parts of the broker still need is known once each has read its state.
        store.protect_log_from(
            lambda: store.log_end if self._is_loaded else PhysicalOffset(0),
            "the broker, which is starting",
        )
        return store
