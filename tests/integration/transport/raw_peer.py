"""The hostile side: bare sockets that do what no client of ours would."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import TracebackType

from orbitmq.protocol.command import Command, decode_command
from orbitmq.protocol.frame import frame_end
from tests.integration.transport.serving import WAIT_SECONDS


class RawPeer:
    """One end of a connection, read and written by hand."""

    def __init__(self, connected: socket.socket) -> None:
        connected.setblocking(False)
        self.socket = connected
        self._unread = bytearray()

    @classmethod
    async def connect(cls, port: int, *, receive_buffer_bytes: int = 0) -> RawPeer:
        connected = socket.socket()
        connected.setblocking(False)
        if receive_buffer_bytes:
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        await asyncio.get_running_loop().sock_connect(connected, ("127.0.0.1", port))
        return cls(connected)

    async def __aenter__(self) -> RawPeer:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    async def send(self, *frames: bytes | Command) -> None:
        parts = [frame.encode() if isinstance(frame, Command) else frame for frame in frames]
        async with asyncio.timeout(WAIT_SECONDS):
            await asyncio.get_running_loop().sock_sendall(self.socket, b"".join(parts))

    async def read(self) -> Command:
        """Read one command."""
        async with asyncio.timeout(WAIT_SECONDS):
            while True:
                end = frame_end(self._unread, 0)
                if end and end <= len(self._unread):
                    command = decode_command(self._unread, 0, end)
                    del self._unread[:end]
                    return command
                chunk = await asyncio.get_running_loop().sock_recv(self.socket, 1 << 20)
                if not chunk:
                    raise EOFError(f"closed with {len(self._unread)} bytes of a frame")
                self._unread += chunk

    async def ask(self, request: Command) -> Command:
        await self.send(request)
        return await self.read()

    async def rest(self) -> bytes:
        """Read all until the other side closes."""
        async with asyncio.timeout(WAIT_SECONDS):
            while True:
                try:
                    chunk = await asyncio.get_running_loop().sock_recv(self.socket, 1 << 20)
                except ConnectionError:
                    chunk = b""
                if not chunk:
                    return bytes(self._unread)
                self._unread += chunk

    async def rest_commands(self) -> list[Command]:
        """Read all commands until the other side closes."""
        unread = await self.rest()
        commands = []
        position = 0
        while position < len(unread):
            end = frame_end(unread, position)
            assert end <= len(unread)
            commands.append(decode_command(unread, position, end))
            position = end
        return commands

    def close(self) -> None:
        self.socket.close()

    def reset(self) -> None:
        """Close with a reset instead of a goodbye."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


class RawServer:
    """Accepts connections for the test to handle."""

    def __init__(self, *, backlog: int = 100, receive_buffer_bytes: int = 0) -> None:
        self._listening = socket.socket()
        if receive_buffer_bytes:
            self._listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self._listening.bind(("127.0.0.1", 0))
        self._listening.listen(backlog)
        self._listening.setblocking(False)
        self.port = int(self._listening.getsockname()[1])
        self.address = f"127.0.0.1:{self.port}"
        self.accepted: list[RawPeer] = []

    async def accept(self) -> RawPeer:
        async with asyncio.timeout(WAIT_SECONDS):
            connected, _ = await asyncio.get_running_loop().sock_accept(self._listening)
        peer = RawPeer(connected)
        self.accepted.append(peer)
        return peer

    def close(self) -> None:
        self._listening.close()
        for peer in self.accepted:
            peer.close()


@asynccontextmanager
async def raw_serving(
    *, backlog: int = 100, receive_buffer_bytes: int = 0
) -> AsyncIterator[RawServer]:
    server = RawServer(backlog=backlog, receive_buffer_bytes=receive_buffer_bytes)
    try:
        yield server
    finally:
        server.close()


def trusting_nothing() -> ssl.SSLContext:
    """The TLS of a client that accepts any certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
