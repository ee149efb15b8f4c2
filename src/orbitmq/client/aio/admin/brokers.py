"""Administers brokers: their state, options and upkeep."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from orbitmq import java_json
from orbitmq.errors import ClusterMissingError
from orbitmq.model.routes import MASTER_ID, ClusterView, MissingBroker
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.clients import ListedProducer, ListProducers, ProducerTable
from orbitmq.protocol.requests.configuration import GetBrokerConfig, UpdateBrokerConfig
from orbitmq.protocol.requests.key_values import KeyValueTable
from orbitmq.protocol.requests.maintenance import (
    CleanExpiredQueues,
    CleanUnusedTopics,
    DeleteExpiredLogs,
)
from orbitmq.protocol.requests.registration import UnregisterBroker
from orbitmq.protocol.requests.routing import (
    AddWritePermission,
    AddWritePermissionReply,
    GetClusterView,
    WipeWritePermission,
    WipeWritePermissionReply,
)
from orbitmq.protocol.requests.statistics import (
    BrokerConsumeStats,
    CounterReply,
    GetBrokerConsumeStats,
    GetCounter,
    GetReplication,
    GetRuntime,
    Replication,
)
from orbitmq.settings.properties_file import PropertiesFile, write_property

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.client.aio.admin.reach import Reach
    from orbitmq.protocol.headers import Header

# Deleting files may take a while.
_UPKEEP_TIMEOUT_MS: Final = 60_000


@dataclass(slots=True, eq=False)
class Brokers:
    """Describes brokers, changes their options, and makes them clean up."""

    _reach: Reach

    async def clusters(self) -> ClusterView:
        """Return all brokers and clusters."""
        return await self._reach.name_servers.cluster_view()

    async def missing(self) -> list[MissingBroker]:
        """List the brokers that left without unregistering, as all name servers know them.

        RocketMQ's name servers do not remember any.
        """
        found: dict[str, MissingBroker] = {}
        for one in await self._missing_everywhere():
            before = found.get(one.name)
            if before is None or one.since_ms < before.since_ms:
                found[one.name] = one
        return [found[name] for name in sorted(found)]

    async def forget(self, broker_name: str) -> MissingBroker:
        """Make the name servers forget a missing broker that never comes back."""
        missing = await self._missing_everywhere()
        wanted = [one for one in missing if one.name == broker_name]
        if not wanted:
            names = {one.name for one in missing}
            raise ClusterMissingError("missing broker", broker_name, there=names)
        for one in wanted:
            # One without addresses has a slave that is back; any address forgets it.
            for broker_id, address in (one.addresses or {MASTER_ID: ""}).items():
                await self._reach.ask_name_servers(
                    UnregisterBroker(
                        broker_name=one.name,
                        broker_address=address,
                        cluster_name=one.cluster,
                        broker_id=Long(broker_id),
                    )
                )
        return wanted[0]

    async def _missing_everywhere(self) -> list[MissingBroker]:
        addresses = self._reach.name_servers.addresses
        asked = GetClusterView(with_missing_brokers=True)
        replies = await self._reach.ask_each(addresses, asked)
        views = [java_json.decode(reply.body, ClusterView) for reply in replies.values()]
        live = {name for view in views for name in view.brokers}
        return [
            one
            for view in views
            for one in view.missing_brokers or ()
            # A name server that a broker does not reach takes it for missing.
            if one.is_served or one.name not in live
        ]

    async def name(self, broker: str) -> str:
        """Return the name of a broker, given by name or address; an unknown address stays."""
        if ":" not in broker:
            await self._reach.check_broker(broker)
            return broker
        return await self._reach.name_of(broker) or broker

    async def addresses(self, *, cluster: str | None = None) -> dict[str, str]:
        """List the masters of a cluster, or of all clusters: address by name."""
        return await self._reach.targets(cluster, None)

    async def runtime(self, broker: str) -> dict[str, str]:
        """Return the runtime state of a broker, given by name or address."""
        address = await self._reach.broker(broker)
        return (await self._reach.ask_for(address, GetRuntime(), KeyValueTable)).table

    async def replication(self, broker: str) -> Replication:
        """Return the slaves of a broker and how far they are; RocketMQ has it from 5.0 on."""
        address = await self._reach.broker(broker)
        return await self._reach.ask_for(address, GetReplication(), Replication)

    async def options(self, broker: str) -> dict[str, str]:
        """Return the options of a broker."""
        reply = await self._reach.ask(await self._reach.broker(broker), GetBrokerConfig())
        found = PropertiesFile.parse(reply.body, name=broker)
        return {one.name: one.value for one in found.properties}

    async def set_options(self, broker: str, options: Mapping[str, str]) -> None:
        """Change options of a running broker."""
        body = "\n".join(write_property(*option) for option in options.items()).encode()
        await self._reach.ask(await self._reach.broker(broker), UpdateBrokerConfig(), body)

    async def counter(self, broker: str, name: str, key: str) -> CounterReply:
        """Return one counter of a broker, such as TOPIC_PUT_NUMS of a topic."""
        address = await self._reach.broker(broker)
        return await self._reach.ask_for(address, GetCounter(name=name, key=key), CounterReply)

    async def producers(self, broker: str) -> dict[str, list[ListedProducer]]:
        """List the producers connected to a broker, by group."""
        address = await self._reach.broker(broker)
        table = await self._reach.ask_for(address, ListProducers(), ProducerTable)
        return dict(sorted(table.groups.items()))

    async def progress(self, broker: str) -> BrokerConsumeStats:
        """Return the progress of every group at a broker, by topic."""
        address = await self._reach.broker(broker)
        header = GetBrokerConsumeStats()
        return await self._reach.ask_for(address, header, BrokerConsumeStats)

    async def forbid_writing(self, broker_name: str) -> int:
        """Stop clients from sending to a broker; returns the number of topics affected."""
        count = 0
        await self._reach.check_broker(broker_name)
        for address in self._reach.name_servers.addresses:
            reply = await self._reach.ask(address, WipeWritePermission(broker_name=broker_name))
            count = WipeWritePermissionReply.decode(reply.fields).topic_count
        return count

    async def allow_writing(self, broker_name: str) -> int:
        """Let clients send to a broker again; returns the number of topics affected."""
        count = 0
        await self._reach.check_broker(broker_name)
        for address in self._reach.name_servers.addresses:
            reply = await self._reach.ask(address, AddWritePermission(broker_name=broker_name))
            count = AddWritePermissionReply.decode(reply.fields).topic_count
        return count

    async def clean_expired_queues(self, broker: str) -> None:
        """Make a broker delete queue files whose messages are gone."""
        await self._upkeep(broker, CleanExpiredQueues())

    async def clean_unused_topics(self, broker: str) -> None:
        """Make a broker delete the queues of deleted topics."""
        await self._upkeep(broker, CleanUnusedTopics())

    async def delete_expired_logs(self, broker: str) -> None:
        """Make a broker delete expired log files now."""
        await self._upkeep(broker, DeleteExpiredLogs())

    async def _upkeep(self, broker: str, header: Header) -> None:
        address = await self._reach.broker(broker)
        await self._reach.ask(address, header, timeout_ms=_UPKEEP_TIMEOUT_MS)
