"""The filter servers of this broker, which filter messages for consumers.

Each registers every 10 s over one connection. It is dropped when that connection closes, or after
30 s of silence; name servers learn of both at once.

Threads: the event loop's.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from orbitmq.errors import RequestRefusedError, SettingsError
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.requests.filter_servers import FILTER_SERVERS_MAX
from orbitmq.transport.addresses import parse_address

if TYPE_CHECKING:
    from orbitmq.clock import Clock
    from orbitmq.transport.connection import Connection

log = logging.getLogger(__name__)

SILENCE_MS_MAX: Final = 30_000
SCAN_INTERVAL_MS: Final = 1000
ADDRESS_LENGTH_MAX: Final = 255
_HOST: Final = re.compile(r"[A-Za-z0-9._:\-]+")


@dataclass(slots=True)
class _FilterServer:
    number: int
    address: str
    heard_ms: float


class FilterServers:
    """The filter servers that are alive, by connection."""

    def __init__(self, *, clock: Clock, on_change: Callable[[], None]) -> None:
        self._clock = clock
        self._on_change = on_change
        self._by_connection: dict[Connection, _FilterServer] = {}
        self._last_number = 0

    @property
    def addresses(self) -> list[str]:
        """Where consumers find them."""
        return sorted(server.address for server in self._by_connection.values())

    def register(self, connection: Connection, address: str) -> int:
        """Note that a filter server is alive; returns its number."""
        _check_address(address)
        server = self._by_connection.get(connection)
        if server is not None and server.address == address:
            server.heard_ms = self._clock.monotonic_ms()
            return server.number
        # One that restarted may be back before its old connection is known to be lost.
        for other, known in list(self._by_connection.items()):
            if known.address == address or other is connection:
                del self._by_connection[other]
        if len(self._by_connection) >= FILTER_SERVERS_MAX:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"this broker already has {FILTER_SERVERS_MAX} filter servers",
                hint="stop one, or register with another broker",
            )
        self._last_number += 1
        self._by_connection[connection] = _FilterServer(
            self._last_number, address, self._clock.monotonic_ms()
        )
        log.info("filter server registered address=%s peer=%s", address, connection.address)
        self._on_change()
        return self._last_number

    def connection_lost(self, connection: Connection) -> None:
        """Drop the filter server of a connection, if it is one."""
        server = self._by_connection.pop(connection, None)
        if server is not None:
            log.warning("filter server lost address=%s", server.address)
            self._on_change()

    def expire(self) -> None:
        """Drop filter servers that have been silent for too long."""
        heard_before_ms = self._clock.monotonic_ms() - SILENCE_MS_MAX
        for connection, server in list(self._by_connection.items()):
            if server.heard_ms < heard_before_ms:
                log.warning("filter server dropped, it is silent address=%s", server.address)
                del self._by_connection[connection]
                connection.close("the filter server is silent")
                self._on_change()


def _check_address(address: str) -> None:
    """Raise for an address that consumers could not connect to."""
    try:
        host, _ = parse_address(address[: ADDRESS_LENGTH_MAX + 1])
    except SettingsError as error:
        raise _wrong(str(error)) from error
    if len(address) > ADDRESS_LENGTH_MAX or not _HOST.fullmatch(host):
        raise _wrong(
            f"{address[:60]!r} is not an address (write host:port, for example 127.0.0.1:10931, "
            f"in at most {ADDRESS_LENGTH_MAX} characters)"
        )


def _wrong(problem: str) -> RequestRefusedError:
    return RequestRefusedError(
        ResponseCode.INVALID_PARAMETER, f"filterServerAddr is wrong: {problem}"
    )
