"""The client instance: what producers and consumers of one client id share.

It owns connections, routes, heartbeats and periodic work; producers and consumers are its
members. Get one from `instances.py`.

Threads: one event loop, the one it was started on.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from orbitmq.client.aio.instance.address_server import AddressServer
from orbitmq.client.aio.instance.broker_calls import BrokerCalls
from orbitmq.client.aio.instance.heartbeats import Heartbeats
from orbitmq.client.aio.instance.name_servers import NameServers
from orbitmq.client.aio.instance.pending_answers import PendingAnswers
from orbitmq.client.aio.instance.routes import Routes
from orbitmq.client.aio.instance.server_calls import ServerCalls
from orbitmq.errors import (
    AddressServerError,
    OrbitError,
    RouteNotFoundError,
    SettingsError,
    StateError,
)
from orbitmq.lifecycle import Periodic, RunOnce
from orbitmq.model.unique_ids import UniqueIds
from orbitmq.protocol.requests.clients import HeartbeatBody, ProducerGroup
from orbitmq.protocol.signing import Credentials, signed_fields
from orbitmq.transport.addresses import parse_addresses
from orbitmq.transport.config import ClientConfig, TlsClientConfig
from orbitmq.transport.rpc_client import RpcClient

if TYPE_CHECKING:
    from orbitmq.client.aio.instance.members import ConsumerMember, ProducerMember
    from orbitmq.client.options import ClientOptions
    from orbitmq.clock import Clock
    from orbitmq.protocol.command import Command
    from orbitmq.transport.connection import Connection
    from orbitmq.transport.hooks import RpcHook

log = logging.getLogger(__name__)

# The group of an instance's own producer; part of every heartbeat.
INNER_PRODUCER: Final = "CLIENT_INNER_PRODUCER"


class InnerProducer(Protocol):
    """A producer that belongs to an instance, not to a user."""

    async def stop(self) -> None:
        """Stop it."""


P = TypeVar("P", bound=InnerProducer)


class ClientInstance:
    """Starts and stops once; shared in between."""

    def __init__(
        self,
        client_id: str,
        options: ClientOptions,
        *,
        address: str,
        clock: Clock,
        rpc_hooks: Sequence[RpcHook] = (),
    ) -> None:
        self.client_id = client_id
        self.options = options
        self.clock = clock
        self.unique_ids = UniqueIds(address, clock.now_ms)
        self.answers = PendingAnswers()
        self._state = RunOnce(f"the client {client_id}")
        self._producers: dict[str, ProducerMember] = {}
        self._consumers: dict[str, ConsumerMember] = {}
        self._inner_producer: InnerProducer | None = None
        self._making_inner_producer = asyncio.Lock()
        calls = ServerCalls(
            producers=self._producers,
            consumers=self._consumers,
            answers=self.answers,
            name_servers=lambda: self.name_servers.addresses,
            clock=clock,
        )
        self.rpc = RpcClient(
            config=ClientConfig(connect_timeout_ms=options.connect_timeout_ms),
            tls=_tls_of(options),
            clock=clock,
            handlers=calls.by_code(),
            hooks=[*rpc_hooks, *_signing_hooks(options)],
            listener=_Connections(self._connection_opened, self._connection_closed),
        )
        # May be empty until `start` has asked the address server.
        self.name_servers = NameServers(
            _shuffled(parse_addresses(options.namesrv)),
            self.rpc,
            clock=clock,
            call_timeout_ms=options.call_timeout_ms,
        )
        self.routes = Routes(
            self.name_servers,
            clock=clock,
            call_timeout_ms=options.call_timeout_ms,
            on_change=self._route_changed,
        )
        self.brokers = BrokerCalls(
            self.rpc,
            self.routes,
            client_id=client_id,
            vip_channel=options.vip_channel,
            call_timeout_ms=options.call_timeout_ms,
        )
        self._heartbeats = Heartbeats(
            self.rpc,
            self.routes,
            content=self._heartbeat_content,
            on_reconnect=self._rebalance_all,
            timeout_ms=options.call_timeout_ms,
        )
        self._address_server = AddressServer(options, clock) if not options.namesrv else None
        self._periodic = [
            Periodic("routes", options.route_interval_ms, self._renew_routes, clock),
            Periodic("heartbeats", options.heartbeat_interval_ms, self.heartbeat_now, clock),
            Periodic("offsets", options.persist_interval_ms, self._persist_offsets, clock),
        ]
        if self._address_server is not None:
            self._periodic.append(
                Periodic(
                    "name servers", options.namesrv_interval_ms, self._renew_name_servers, clock
                )
            )

    # --- lifecycle ----------------------------------------------------------------------------

    async def start(self) -> None:
        """Find the name servers and start the periodic work."""
        self._state.begin()
        if self._address_server is not None:
            await self._find_name_servers(self._address_server)
        await self.rpc.start()
        for work in self._periodic:
            work.start()
        log.info(
            "client started id=%s name_servers=%s",
            self.client_id,
            ";".join(self.name_servers.addresses),
        )

    async def stop(self) -> None:
        """Stop the periodic work and close every connection."""
        if not await self._state.begin_stop():
            return
        try:
            inner, self._inner_producer = self._inner_producer, None
            if inner is not None:
                await inner.stop()
            for work in self._periodic:
                await work.stop()
            await self._heartbeats.stop()
            await self.routes.stop()
            self.answers.fail_all()
        finally:
            await self.rpc.stop()
            self._state.end_stop()
            log.info("client stopped id=%s", self.client_id)

    # --- members ------------------------------------------------------------------------------

    async def add_producer(self, member: ProducerMember) -> None:
        """Add a producer, and tell the brokers already known."""
        self._add(self._producers, "producer", member.group, member)
        await self._announce(self._introduce_producers(), self._producers, member)

    async def remove_producer(self, member: ProducerMember) -> None:
        """Remove a producer, and tell the brokers."""
        if self._producers.get(member.group) is member:
            del self._producers[member.group]
            await self._unregister(producer_group=member.group)

    async def add_consumer(self, member: ConsumerMember) -> None:
        """Add a consumer: look up its topics, then tell their brokers."""
        self._add(self._consumers, "consumer", member.group, member)
        await self._announce(self._look_up_topics(member), self._consumers, member)

    async def remove_consumer(self, member: ConsumerMember, *, keeps_locks: bool = False) -> None:
        """Remove a consumer, and tell the brokers, which notify the rest of its group.

        With `keeps_locks` our brokers let its locks expire, instead of releasing them.
        """
        if self._consumers.get(member.group) is member:
            del self._consumers[member.group]
            await self._unregister(consumer_group=member.group, keeps_locks=keeps_locks)

    async def heartbeat_now(self) -> None:
        """Tell all brokers what this client produces and consumes."""
        if self._producers or self._consumers:
            await self._heartbeats.send_to_all()

    async def inner_producer(self, make: Callable[[ClientInstance], Coroutine[Any, Any, P]]) -> P:
        """Return the instance's own producer; the first call makes it."""
        self._state.check_not_stopped()
        async with self._making_inner_producer:
            if self._inner_producer is None:
                self._inner_producer = await make(self)
        return self._inner_producer  # type: ignore[return-value]  # `make` has one type only

    def unaware(self, addresses: Iterable[str]) -> set[str]:
        """Return which of these brokers may not know this client, and so cannot call it."""
        return set(addresses) - self._heartbeats.acknowledged

    async def introduce_to(self, addresses: Iterable[str]) -> None:
        """Send a heartbeat to these brokers, and wait for their replies."""
        await self._heartbeats.send_to(addresses)

    def broker_version(self, address: str) -> int:
        """The version in a broker's last reply to a heartbeat; 0 if unknown."""
        return self._heartbeats.broker_versions.get(address, 0)

    # --- inside -------------------------------------------------------------------------------

    def _add(self, members: dict[str, Any], kind: str, group: str, member: object) -> None:
        self._state.check_not_stopped()
        if group in members:
            raise StateError(
                f"the client {self.client_id} already has a {kind} of the group {group!r}",
                hint="use that one, or give this one another group or instance_name",
            )
        members[group] = member

    async def _announce(
        self,
        work: Coroutine[Any, Any, None],
        members: dict[str, Any],
        member: ProducerMember | ConsumerMember,
    ) -> None:
        try:
            await work
        except BaseException:
            members.pop(member.group, None)
            raise

    async def _introduce_producers(self) -> None:
        await self._find_asking_brokers()
        await self.heartbeat_now()

    async def _find_asking_brokers(self) -> None:
        """Look up all brokers if a producer of this client may be asked about transactions.

        Any of them may have one of its group that was left open, also before its first send.
        """
        if not any(producer.answers_checks for producer in self._producers.values()):
            self.routes.forget_further_brokers()
            return
        try:
            await self.routes.find_all_brokers()
        except OrbitError as error:
            log.warning("brokers with transactions not looked up reason=%s", error)

    async def _look_up_topics(self, member: ConsumerMember) -> None:
        for topic in list(member.topics()):
            try:
                await self.routes.refresh(topic)
            except RouteNotFoundError as error:
                log.info("consumer waits for its topic topic=%s reason=%s", topic, error)
        await self.heartbeat_now()

    async def _unregister(
        self,
        *,
        producer_group: str | None = None,
        consumer_group: str | None = None,
        keeps_locks: bool = False,
    ) -> None:
        # A broker without a connection to this client has already forgotten it.
        connected = self.rpc.connected
        known = {broker.address for broker in self.routes.addresses()}
        await asyncio.gather(
            *(
                self._unregister_at(
                    address, producer_group, consumer_group, keeps_locks=keeps_locks
                )
                for address in known & connected
            )
        )

    async def _unregister_at(
        self,
        address: str,
        producer_group: str | None,
        consumer_group: str | None,
        *,
        keeps_locks: bool,
    ) -> None:
        try:
            await self.brokers.unregister(
                address,
                self.client_id,
                producer_group=producer_group,
                consumer_group=consumer_group,
                keeps_locks=keeps_locks,
                timeout_ms=self.options.call_timeout_ms,
            )
        except OrbitError as error:
            log.warning("could not unregister at a broker address=%s reason=%s", address, error)

    def _heartbeat_content(self) -> HeartbeatBody:
        groups = dict.fromkeys((INNER_PRODUCER, *self._producers))
        return HeartbeatBody(
            client_id=self.client_id,
            consumers=[member.heartbeat() for member in self._consumers.values()],
            producers=[ProducerGroup(group=group) for group in groups],
        )

    def _connection_opened(self, address: str) -> None:
        self.routes.silent.heard(address)
        if (self._producers or self._consumers) and not self._state.stopping:
            self._heartbeats.connection_opened(address)

    def _connection_closed(self, address: str) -> None:
        self._heartbeats.connection_closed(address)

    def _rebalance_all(self) -> None:
        for member in list(self._consumers.values()):
            member.rebalance_soon()

    def _route_changed(self, topic: str) -> None:
        for member in list(self._consumers.values()):
            if topic in member.topics():
                member.route_changed(topic)

    async def _renew_routes(self) -> None:
        await self._find_asking_brokers()
        topics: set[str] = set()
        for producer in self._producers.values():
            topics.update(producer.topics())
        for consumer in self._consumers.values():
            topics.update(consumer.topics())
        await self.routes.renew(topics)

    async def _persist_offsets(self) -> None:
        for member in list(self._consumers.values()):
            try:
                await member.persist_offsets()
            except OrbitError as error:
                log.warning("offsets not committed group=%s reason=%s", member.group, error)
            except Exception:
                # A bug in one consumer must not keep the offsets of the others from being committed.
                log.exception("offsets not committed group=%s", member.group)

    async def _find_name_servers(self, server: AddressServer) -> None:
        if not self.options.namesrv_domain:
            raise SettingsError(
                "no name server is given",
                hint="pass namesrv='host:9876', or set NAMESRV_ADDR",
            )
        self.name_servers.update(_shuffled(await server.name_servers()))

    async def _renew_name_servers(self) -> None:
        assert self._address_server is not None
        try:
            found = await self._address_server.name_servers()
        except AddressServerError as error:
            log.warning("name servers not renewed reason=%s", error)
            return
        if set(found) != set(self.name_servers.addresses):
            log.info("name servers changed to=%s", ";".join(found))
            self.name_servers.update(_shuffled(found))


@dataclass(slots=True, eq=False)
class _Connections:
    """Reports the address of each connection that opens or closes."""

    on_opened: Callable[[str], None]
    on_closed: Callable[[str], None]

    def on_open(self, connection: Connection) -> None:
        self.on_opened(connection.address)

    def on_idle(self, connection: Connection) -> None:
        """Nothing: the next call reconnects."""

    def on_close(self, connection: Connection, error: Exception | None) -> None:  # noqa: ARG002
        self.on_closed(connection.address)


@dataclass(slots=True, eq=False)
class _Signing:
    """An RPC hook that signs every request; it runs last, since other hooks may add fields."""

    credentials: Credentials

    def before_request(self, _address: str, request: Command) -> None:
        request.fields = signed_fields(request.fields, request.body, self.credentials)

    def after_response(self, address: str, request: Command, response: Command | None) -> None:
        """Nothing: servers do not sign replies."""


def _signing_hooks(options: ClientOptions) -> list[_Signing]:
    if not options.access_key:
        return []
    return [
        _Signing(
            Credentials(
                access_key=options.access_key,
                secret_key=options.secret_key,
                security_token=options.security_token,
            )
        )
    ]


def _shuffled(addresses: list[str]) -> list[str]:
    """Spread clients over the name servers: each stays with the first one that replies."""
    return random.sample(addresses, len(addresses))


def _tls_of(options: ClientOptions) -> TlsClientConfig:
    return TlsClientConfig(
        enable=options.tls,
        verify_server=options.tls_verify_server,
        trusted_path=options.tls_trusted_path,
        certificate_path=options.tls_certificate_path,
        key_path=options.tls_key_path,
        key_password=options.tls_key_password,
    )
