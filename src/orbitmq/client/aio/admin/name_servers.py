"""Administers name servers: their options, and the epochs they know."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from orbitmq import java_json
from orbitmq.errors import ClusterMissingError
from orbitmq.model.routes import ClusterView
from orbitmq.protocol.requests.configuration import GetNameServerConfig, UpdateNameServerConfig
from orbitmq.protocol.requests.registration import ForgetEpoch
from orbitmq.protocol.requests.routing import GetClusterView
from orbitmq.settings.properties_file import PropertiesFile, write_property

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.client.aio.admin.reach import Reach


@dataclass(slots=True, eq=False)
class NameServerOptions:
    """Reads and changes the options of every name server, and the epochs that each knows."""

    _reach: Reach

    async def options(self) -> dict[str, dict[str, str]]:
        """Return the options of each name server, by address."""
        addresses = self._reach.name_servers.addresses
        replies = await self._reach.ask_each(addresses, GetNameServerConfig())
        return {
            address: {
                one.name: one.value
                for one in PropertiesFile.parse(replies[address].body, name=address).properties
            }
            for address in addresses
        }

    async def set_options(self, options: Mapping[str, str]) -> None:
        """Change options of all name servers."""
        body = "\n".join(write_property(*option) for option in options.items()).encode()
        addresses = self._reach.name_servers.addresses
        await self._reach.ask_each(addresses, UpdateNameServerConfig(), body)

    async def epochs(self) -> dict[str, dict[str, dict[str, int]]]:
        """Return the epochs that each name server knows: by its address, cluster and broker name.

        RocketMQ's name servers know none.
        """
        addresses = self._reach.name_servers.addresses
        replies = await self._reach.ask_each(addresses, GetClusterView(with_epochs=True))
        return {
            address: java_json.decode(replies[address].body, ClusterView).epochs or {}
            for address in addresses
        }

    async def forget_epoch(self, broker_name: str) -> int:
        """Make all name servers forget the epoch of a broker group; returns the largest.

        After that they accept a master of any epoch, unless one of a larger epoch is alive.
        """
        known = await self.epochs()
        found = [
            (address, cluster, by_name[broker_name])
            for address, by_cluster in known.items()
            for cluster, by_name in by_cluster.items()
            if broker_name in by_name
        ]
        if not found:
            names = {
                name
                for by_cluster in known.values()
                for by_name in by_cluster.values()
                for name in by_name
            }
            raise ClusterMissingError(
                "broker group with an epoch above 0,", broker_name, there=names
            )
        for address, cluster, _ in found:
            forget = ForgetEpoch(cluster_name=cluster, broker_name=broker_name)
            await self._reach.ask(address, forget)
        return max(epoch for _, _, epoch in found)
