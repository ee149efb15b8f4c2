"""Registration of filter servers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.filter_servers import (
    RegisterFilterServer,
    RegisterFilterServerReply,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.broker.config import BrokerConfig
    from orbitmq.broker.filter_servers import FilterServers
    from orbitmq.protocol.command import Command
    from orbitmq.transport.connection import Connection
    from orbitmq.transport.request_loop import Handler


@dataclass(slots=True, eq=False, kw_only=True)
class FilterServerRequests:
    """Keeps the table of filter servers."""

    config: Callable[[], BrokerConfig]
    filter_servers: FilterServers

    def by_code(self) -> Mapping[int, Handler]:
        """The handlers by request code."""
        return {RequestCode.REGISTER_FILTER_SERVER: self.register}

    def register(self, connection: Connection, request: Command) -> Command:
        """Register a filter server, or note that it is still alive."""
        asked = RegisterFilterServer.decode(request.fields)
        number = self.filter_servers.register(connection, asked.address)
        config = self.config()
        return request.reply(
            RegisterFilterServerReply(
                filter_server_id=Long(number),
                broker_name=config.broker_name,
                broker_id=Long(config.broker_id),
            )
        )
