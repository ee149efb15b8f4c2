"""Registration: reports this broker and its topics to the name servers.

The whole table is reported at start and at intervals, changes at once. A name server that did not
answer, or whose connection was lost, gets the table again within a second: after a restart it knows
nothing, and its clients find no broker until then.

Threads: the event loop's.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import zlib
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import msgspec

from orbitmq.clock import time_limit
from orbitmq.errors import MasterReplacedError, OrbitError
from orbitmq.lifecycle import OwnedTasks, Periodic
from orbitmq.model.topics import Permission, TopicConfig
from orbitmq.protocol.requests.registration import (
    RegisterBroker,
    RegisterBrokerReply,
    UnregisterBroker,
    encode_register_body,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping

    from orbitmq.clock import Clock
    from orbitmq.model.versions import DataVersion
    from orbitmq.transport.rpc_client import RpcClient

log = logging.getLogger(__name__)

_CRC_MASK: Final = 0x7FFFFFFF
_UNREGISTER_TIMEOUT_MS: Final = 3000
_RETRY_INTERVAL_MS: Final = 1000
_START_WAIT_MS: Final = 3000
_CHANGES_WAIT_MS: Final = 1000
_READ_AND_WRITE: Final = Permission.READ | Permission.WRITE


class Registration:
    """Keeps the name servers up to date."""

    def __init__(  # noqa: PLR0913  # by name
        self,
        *,
        rpc: RpcClient,
        name_servers: Callable[[], list[str]],
        identity: Callable[[], RegisterBroker],
        topics: Callable[[], tuple[Mapping[str, TopicConfig], DataVersion]],
        permission: Callable[[], int],
        filter_servers: Callable[[], list[str]],
        on_registered: Callable[[RegisterBrokerReply], None],
        check_succession: Callable[[], Coroutine[None, None, None]],
        may_hide_successor: Callable[[], bool],
        interval_ms: int,
        timeout_ms: int,
        clock: Clock,
    ) -> None:
        self._rpc = rpc
        self._name_servers = name_servers
        self._identity = identity
        self._topics = topics
        self._permission = permission
        self._filter_servers = filter_servers
        self._on_registered = on_registered
        # Asks whether another master has replaced this one. Compat: before a report, since the last
        # master that reports to a name server of RocketMQ 4 hides the other.
        self._check_succession = check_succession
        # Whether it has to be asked before changes, too: consumers wait for their retry topics.
        self._may_hide_successor = may_hide_successor
        self._timeout_ms = timeout_ms
        self._clock = clock
        self._periodics = [
            Periodic("registration", interval_ms, self.register_all, clock),
            Periodic("registration retries", _RETRY_INTERVAL_MS, self._register_missing, clock),
        ]
        self._changes = OwnedTasks()
        # Changed topics that are not reported yet; one task reports them.
        self._changed: dict[str, TopicConfig] = {}
        self._filter_servers_changed = False
        # Set while there is nothing to report.
        self._reported = asyncio.Event()
        self._reported.set()
        # Name servers that accepted the last whole report.
        self._registered: set[str] = set()
        self._missed: set[str] = set()
        # A report after unregistering would register the broker again.
        self._is_leaving = self._is_abandoned = False

    async def start(self) -> None:
        """Report once, then at intervals; a name server that is down is no error.

        The first report is waited for 3 s at most, in case a name server does not answer.
        """
        reported = asyncio.Event()

        async def report() -> None:
            try:
                await self.register_all()
            finally:
                reported.set()

        self._changes.start(report(), name="first registration")
        try:
            async with time_limit(self._clock, _START_WAIT_MS):
                await reported.wait()
        except TimeoutError:
            log.warning(
                "starting without name servers that do not answer addresses=%s",
                ";".join(sorted(set(self._name_servers()) - self._registered)),
            )
        for periodic in self._periodics:
            periodic.start()

    def abandon(self) -> None:
        """Report nothing more, not even that this broker leaves: as if the process were killed."""
        self._is_leaving = self._is_abandoned = True

    async def stop(self) -> None:
        """Unregister from all name servers; later changes are not reported."""
        self._is_leaving = True
        for periodic in self._periodics:
            await periodic.stop()
        await self._changes.cancel()
        if not self._is_abandoned:
            # Compat: at a name server of RocketMQ 4, one master that leaves takes the other along.
            await self._check_succession()
        if self._is_abandoned:
            return
        identity = self._identity()
        leave = UnregisterBroker(
            broker_name=identity.broker_name,
            broker_address=identity.broker_address,
            cluster_name=identity.cluster_name,
            broker_id=identity.broker_id,
        )
        await asyncio.gather(*(self._leave(address, leave) for address in self._name_servers()))

    async def register_all(self) -> None:
        """Report all topics to all name servers."""
        await self._report_all(self._name_servers())

    def topics_changed(self, topics: Iterable[TopicConfig]) -> None:
        """Report new or changed topics, without waiting for the replies.

        Changes during a report go into the next one. A name server that was not reached gets the
        whole table soon, and is not retried for every change.
        """
        self._changed.update((topic.name, topic) for topic in topics)
        self._start_report()

    def filter_servers_changed(self) -> None:
        """Report the filter servers, without waiting for the replies."""
        self._filter_servers_changed = True
        self._start_report()

    def _start_report(self) -> None:
        if self._reported.is_set() and not self._is_leaving:
            self._reported.clear()
            self._changes.start(self._report_changes(), name="registration of changes")

    async def _report_changes(self) -> None:
        try:
            while self._changed or self._filter_servers_changed:
                if not await self._may_report_changes():
                    return
                changed, self._changed = self._changed, {}
                self._filter_servers_changed = False
                _, version = self._topics()
                await self._report(self._reached(), changed, version)
        finally:
            self._reported.set()

    async def changes_reported(self) -> None:
        """Return once the name servers know all changes, or have not answered in time."""
        with contextlib.suppress(TimeoutError):
            async with time_limit(self._clock, _CHANGES_WAIT_MS):
                await self._reported.wait()

    async def announce(self, topics: Iterable[TopicConfig]) -> None:
        """Report new or changed topics; returns once the name servers have answered."""
        changed = {topic.name: topic for topic in topics}
        if not await self._may_report_changes():
            return
        everything, version = self._topics()
        await asyncio.gather(
            self._report(self._reached(), changed, version),
            self._report(self._missing(), everything, version),
        )

    async def _register_missing(self) -> None:
        await self._report_all(self._missing())

    def _missing(self) -> list[str]:
        """Name servers that may not know this broker."""
        reached = self._registered & self._rpc.connected
        return [address for address in self._name_servers() if address not in reached]

    def _reached(self) -> list[str]:
        missing = self._missing()
        return [address for address in self._name_servers() if address not in missing]

    async def _may_report(self) -> bool:
        """Whether this broker still counts, and is not leaving."""
        if not self._is_leaving:
            await self._check_succession()
        return not self._is_leaving

    async def _may_report_changes(self) -> bool:
        return await self._may_report() if self._may_hide_successor() else not self._is_leaving

    async def _report_all(self, addresses: list[str]) -> None:
        if addresses and await self._may_report():
            topics, version = self._topics()
            await self._report(addresses, topics, version)

    async def _report(
        self, addresses: list[str], topics: Mapping[str, TopicConfig], version: DataVersion
    ) -> None:
        if not addresses:
            return
        body = encode_register_body(
            self._with_broker_permission(topics), version, filter_servers=self._filter_servers()
        )
        header = replace(self._identity(), body_crc=zlib.crc32(body) & _CRC_MASK)
        await asyncio.gather(*(self._register(address, header, body) for address in addresses))

    def _with_broker_permission(
        self, topics: Mapping[str, TopicConfig]
    ) -> Mapping[str, TopicConfig]:
        """Limit the permissions of topics to those of the broker."""
        permission = self._permission()
        if permission & _READ_AND_WRITE == _READ_AND_WRITE:
            return topics
        return {
            name: msgspec.structs.replace(topic, permission=topic.permission & permission)
            for name, topic in topics.items()
        }

    async def _register(self, address: str, header: RegisterBroker, body: bytes) -> None:
        try:
            reply = await self._rpc.call(address, header, body, timeout_ms=self._timeout_ms)
        except MasterReplacedError as error:
            self._registered.discard(address)
            log.warning("registration refused name_server=%s reason=%s", address, error)
            self._changes.start(self._check_succession(), name="who replaced this master")
            return
        except OrbitError as error:
            # Logged once, not at every attempt.
            if address not in self._missed:
                log.warning("registration failed name_server=%s reason=%s", address, error)
            self._missed.add(address)
            self._registered.discard(address)
            return
        self._on_registered(RegisterBrokerReply.decode(reply.fields))
        self._missed.discard(address)
        if address not in self._registered:
            self._registered.add(address)
            log.info("registered name_server=%s broker=%s", address, header.broker_name)

    async def _leave(self, address: str, leave: UnregisterBroker) -> None:
        try:
            await self._rpc.call(address, leave, timeout_ms=_UNREGISTER_TIMEOUT_MS)
        except OrbitError as error:
            log.warning("unregistration failed name_server=%s reason=%s", address, error)
