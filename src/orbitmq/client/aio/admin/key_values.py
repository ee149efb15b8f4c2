"""Administers the key values of name servers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from orbitmq import java_json
from orbitmq.protocol.requests.key_values import (
    DeleteKeyValue,
    GetKeyValue,
    KeyValueReply,
    KeyValueTable,
    ListKeyValues,
    PutKeyValue,
)

if TYPE_CHECKING:
    from orbitmq.client.aio.admin.reach import Reach


@dataclass(slots=True, eq=False)
class KeyValues:
    """Reads key values, and changes them on every name server."""

    _reach: Reach

    async def put(self, namespace: str, key: str, value: str) -> None:
        """Set the value of a key."""
        await self._reach.ask_name_servers(PutKeyValue(namespace=namespace, key=key, value=value))

    async def get(self, namespace: str, key: str) -> str:
        """Return the value of a key."""
        reply = await self._reach.name_servers.ask(GetKeyValue(namespace=namespace, key=key))
        return KeyValueReply.decode(reply.fields).value

    async def delete(self, namespace: str, key: str) -> None:
        """Delete a key."""
        await self._reach.ask_name_servers(DeleteKeyValue(namespace=namespace, key=key))

    async def all(self, namespace: str) -> dict[str, str]:
        """Return all keys and values of a namespace."""
        reply = await self._reach.name_servers.ask(ListKeyValues(namespace=namespace))
        return java_json.decode(reply.body, KeyValueTable).table
