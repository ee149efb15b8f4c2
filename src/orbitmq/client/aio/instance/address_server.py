"""The address server: an HTTP server that tells where the name servers are.

RocketMQ's rule: GET http://<domain>:8080/rocketmq/<subgroup>, the port left out when the domain
names one; `-<unit>?nofix=1` at the end for clients of a unit. The first line of the answer is the
list of addresses.

Perf: no HTTP library: one request in two minutes, of which a status and a line are read.
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
_ANSWER_BYTES_MAX: Final = 64 * 1024


class AddressServer:
    """One address server, and which list is asked of it."""

    def __init__(self, options: ClientOptions, clock: Clock) -> None:
        domain = options.namesrv_domain
        self._authority = domain if ":" in domain else f"{domain}:8080"
        unit = f"-{options.unit_name}?nofix=1" if options.unit_name else ""
        self._path = f"/rocketmq/{options.namesrv_subgroup}{unit}"
        self._clock = clock

    @property
    def url(self) -> str:
        """What is asked for."""
        return f"http://{self._authority}{self._path}"

    async def name_servers(self) -> list[str]:
        """Fetch the addresses of the name servers; raises AddressServerError."""
        host, port = parse_address(self._authority)
        try:
            async with time_limit(self._clock, _TIMEOUT_MS):
                answer = await self._get(host, port)
        except TimeoutError as error:
            raise AddressServerError(self.url, f"no answer within {_TIMEOUT_MS} ms") from error
        except (OSError, ValueError) as error:
            raise AddressServerError(self.url, str(error) or type(error).__name__) from error
        text = _first_line(self.url, answer)
        try:
            addresses = parse_addresses(text)
        except SettingsError as error:
            raise AddressServerError(self.url, f"it answered {text[:200]!r}") from error
        if not addresses:
            raise AddressServerError(self.url, "its answer is empty")
        return addresses

    async def _get(self, host: str, port: int) -> bytes:
        reader, writer = await asyncio.open_connection(host, port)
        try:
            writer.write(
                # HTTP/1.0: the answer ends where the connection ends, and comes in one piece.
                f"GET {self._path} HTTP/1.0\r\nHost: {self._authority}\r\n"
                "Accept: text/plain\r\nConnection: close\r\n\r\n".encode()
            )
            answer = bytearray()
            while len(answer) <= _ANSWER_BYTES_MAX and (piece := await reader.read(65_536)):
                answer += piece
            return bytes(answer)
        finally:
            # Nothing is left to send: what the peer still has to say is not waited for.
            writer.transport.abort()


def _first_line(url: str, answer: bytes) -> str:
    """Read status and body, and give the first line of the body."""
    head, blank, body = answer.partition(b"\r\n\r\n")
    status_line = head.partition(b"\r\n")[0].decode("latin-1")
    version, _, status = status_line.partition(" ")
    if len(answer) > _ANSWER_BYTES_MAX:
        raise AddressServerError(url, f"its answer is longer than {_ANSWER_BYTES_MAX} bytes")
    if not version.startswith("HTTP/") or not blank:
        raise AddressServerError(url, "what answers there does not speak HTTP")
    if not status.startswith("200"):
        raise AddressServerError(url, f"it answered {status[:60]!r}")
    lines = body.decode("utf-8", "replace").strip().splitlines()
    return lines[0] if lines else ""
