"""Where the other brokers are, as the name servers say."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from orbitmq import java_json
from orbitmq.errors import OrbitError, RequestRefusedError
from orbitmq.model.routes import MASTER_ID, ClusterView
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.requests.routing import GetClusterView

if TYPE_CHECKING:
    from orbitmq.transport.rpc_client import RpcClient

_TIMEOUT_MS: Final = 3_000


class BrokerAddresses:
    """Finds brokers by name."""

    def __init__(self, rpc: RpcClient, name_servers: Callable[[], list[str]]) -> None:
        self._rpc = rpc
        self._name_servers = name_servers

    async def master_of(self, name: str) -> str:
        """The address of the master of a broker group, asked for anew."""
        failure: OrbitError | None = None
        for name_server in self._name_servers():
            try:
                reply = await self._rpc.call(name_server, GetClusterView(), timeout_ms=_TIMEOUT_MS)
            except OrbitError as error:
                failure = error
                continue
            view = java_json.decode(reply.body, ClusterView)
            group = view.brokers.get(name)
            if group is not None and MASTER_ID in group.addresses:
                return group.addresses[MASTER_ID]
        if failure is not None:
            raise failure
        raise RequestRefusedError(
            ResponseCode.BROKER_NOT_EXIST,
            f"no name server tells where broker {name!r} is",
            hint="it is down, or has left the cluster",
        )
