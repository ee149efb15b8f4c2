"""Administers name servers: their options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from orbitmq.protocol.requests.configuration import GetNameServerConfig, UpdateNameServerConfig
from orbitmq.settings.properties_file import PropertiesFile, write_property

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.client.aio.admin.reach import Reach


@dataclass(slots=True, eq=False)
class NameServerOptions:
    """Reads and changes the options of every name server."""

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
