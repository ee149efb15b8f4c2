"""Options of a running broker: show and change them."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from orbitmq import java_json
from orbitmq.broker.config import BrokerConfig
from orbitmq.java_json import Dialect
from orbitmq.model.versions import DataVersion
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.requests.configuration import BrokerConfigReply
from orbitmq.transport.config import ServerConfig
from orbitmq.transport.option_requests import OptionRequests

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from orbitmq.clock import Clock
    from orbitmq.protocol.command import Command
    from orbitmq.settings import Settings
    from orbitmq.transport.connection import Connection
    from orbitmq.transport.request_loop import Handler

# Options that no live update may change, whatever configBlackList says.
_ALWAYS_FORBIDDEN: Final = frozenset({"brokerConfigPath", "configBlackList", "rocketmqHome"})
_PERMISSION: Final = "brokerPermission"
# Compat: no options here, but exportConfigs and exportMetrics of RocketMQ's tools look for them:
# a client without TLS, the number of processors.
_FOR_TOOLS: Final = {
    "useTLS": "false",
    "filterServerNums": "0",
    "clientCallbackExecutorThreads": str(os.cpu_count() or 1),
}


class BrokerOptionRequests:
    """Shows and changes options, and keeps their version."""

    def __init__(
        self,
        settings: Settings,
        *,
        file: Path,
        register: Callable[[], Awaitable[None]],
        clock: Clock,
    ) -> None:
        self._settings = settings
        # Reports the current permission to the name servers.
        self._register = register
        self._clock = clock
        self._version = DataVersion()
        self._options = OptionRequests(
            settings,
            file=file,
            forbidden=self._forbidden,
            allow_guarded=settings.of(ServerConfig).allow_guarded_updates,
        )

    def by_code(self) -> Mapping[int, Handler]:
        """The handlers by request code."""
        return {
            RequestCode.UPDATE_BROKER_CONFIG: self.update,
            RequestCode.GET_BROKER_CONFIG: self.show,
        }

    async def update(self, connection: Connection, request: Command) -> Command:
        """Change options; a new permission is reported to the name servers."""
        changed = await self._options.apply(connection, request)
        if changed.options:
            self._version = self._version.next(self._clock.now_ms())
        if _PERMISSION in changed.names:
            await self._register()
        return request.reply()

    def show(self, _: Connection, request: Command) -> Command:
        """Return all options, and their version."""
        version = java_json.encode(self._version, Dialect.STANDARD).decode()
        header = BrokerConfigReply(data_version=version)
        return self._options.reply_with_options(request, header, further=_FOR_TOOLS)

    def _forbidden(self) -> frozenset[str]:
        return _ALWAYS_FORBIDDEN.union(self._settings.of(BrokerConfig).config_black_list)
