"""Administering the key values of name servers."""

from __future__ import annotations

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


class KeyValues:
    """Reads and changes key values, at every name server."""

    def __init__(self, reach: Reach) -> None:
        self._reach = reach

    async def put(self, namespace: str, key: str, value: str) -> None:
        """Set a key."""
        await self._reach.ask_name_servers(PutKeyValue(namespace=namespace, key=key, value=value))

    async def get(self, namespace: str, key: str) -> str:
        """Read a key."""
        reply = await self._reach.name_servers.ask(GetKeyValue(namespace=namespace, key=key))
        return KeyValueReply.decode(reply.fields).value

    async def delete(self, namespace: str, key: str) -> None:
        """Delete a key."""
        await self._reach.ask_name_servers(DeleteKeyValue(namespace=namespace, key=key))

    async def all(self, namespace: str) -> dict[str, str]:
        """Read every key of a namespace."""
        reply = await self._reach.name_servers.ask(ListKeyValues(namespace=namespace))
        return java_json.decode(reply.body, KeyValueTable).table
