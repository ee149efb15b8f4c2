"""The address server: an HTTP server that lists the name servers.

RocketMQ's rule: GET http://<domain>:8080/rocketmq/<subgroup>, without 8080 if the domain has a
port, and followed by `-<unit>?nofix=1` for clients of a unit. The first line of the body is the
list of addresses.

No HTTP library: one request in two minutes, of which only the status and a line are read.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from orbitmq.clock import time_limit
from orbitmq.errors import AddressServerError, SettingsError
from orbitmq.transport.addresses import parse_address, parse_addresses

if TYPE_CHECKING:
    from orbitmq.client.options import ClientOptions
    from orbitmq.clock import Clock

_TIMEOUT_MS: Final = 3000
_REPLY_BYTES_MAX: Final = 64 * 1024


class AddressServer:
    """One address server, and the list that this client fetches from it."""

    def __init__(self, options: ClientOptions, clock: Clock) -> None:
        domain = options.namesrv_domain
        self._authority = domain if ":" in domain else f"{domain}:8080"
        unit = f"-{options.unit_name}?nofix=1" if options.unit_name else ""
        self._path = f"/rocketmq/{options.namesrv_subgroup}{unit}"
        self._clock = clock

    @property
    def url(self) -> str:
        """The address of the list."""
        return f"http://{self._authority}{self._path}"

    async def name_servers(self) -> list[str]:
        """Fetch the addresses of the name servers; raises AddressServerError."""
        host, port = parse_address(self._authority)
        try:
            async with time_limit(self._clock, _TIMEOUT_MS):
                reply = await self._get(host, port)
        except TimeoutError as error:
            raise AddressServerError(self.url, f"no answer within {_TIMEOUT_MS} ms") from error
        except (OSError, ValueError) as error:
            raise AddressServerError(self.url, str(error) or type(error).__name__) from error
        text = _first_line(self.url, reply)
        try:
            addresses = parse_addresses(text)
        except SettingsError as error:
            raise AddressServerError(self.url, f"it replied {text[:200]!r}") from error
        if not addresses:
            raise AddressServerError(self.url, "its reply is empty")
        return addresses

    async def _get(self, host: str, port: int) -> bytes:
        reader, writer = await asyncio.open_connection(host, port)
        try:
            writer.write(
                # HTTP/1.0: the reply ends with the connection, and is not chunked.
                f"GET {self._path} HTTP/1.0\r\nHost: {self._authority}\r\n"
                "Accept: text/plain\r\nConnection: close\r\n\r\n".encode()
            )
            reply = bytearray()
            while len(reply) <= _REPLY_BYTES_MAX and (piece := await reader.read(65_536)):
                reply += piece
            return bytes(reply)
        finally:
            # The request is sent, and the rest of a long reply is not wanted.
            writer.transport.abort()


def _first_line(url: str, reply: bytes) -> str:
    """Check the status, and return the first line of the body."""
    head, blank, body = reply.partition(b"\r\n\r\n")
    status_line = head.partition(b"\r\n")[0].decode("latin-1")
    version, _, status = status_line.partition(" ")
    if len(reply) > _REPLY_BYTES_MAX:
        raise AddressServerError(url, f"its reply is longer than {_REPLY_BYTES_MAX} bytes")
    if not version.startswith("HTTP/") or not blank:
        raise AddressServerError(url, "the server there does not speak HTTP")
    if not status.startswith("200"):
        raise AddressServerError(url, f"it replied {status[:60]!r}")
    lines = body.decode("utf-8", "replace").strip().splitlines()
    return lines[0] if lines else ""
