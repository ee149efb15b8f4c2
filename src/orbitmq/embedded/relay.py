"""A relay to a broker: drops, delays and refuses connections, holds requests.

Threads: one event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import Final

from orbitmq.clock import SystemClock
from orbitmq.errors import ProtocolError
from orbitmq.lifecycle import OwnedTasks
from orbitmq.protocol.command import decode_frame
from orbitmq.protocol.frame import frame_end

_CHUNK_BYTES: Final = 64 * 1024


class Relay:
    """Forwards bytes between clients and one broker."""

    def __init__(self, *, chance: random.Random) -> None:
        self._chance = chance
        self._target: tuple[str, int] | None = None
        self._server: asyncio.Server | None = None
        self._connections = OwnedTasks()
        self._writers: set[asyncio.StreamWriter] = set()
        self._clock = SystemClock()
        self.port = 0
        # Every chunk is delayed by this, plus a random part of the jitter.
        self.delay_ms = 0.0
        self.jitter_ms = 0.0
        self.refuses = False
        # The event that releases held requests, by code.
        self._held: dict[int, asyncio.Event] = {}

    async def start(self, host: str) -> None:
        """Listen on a free port."""
        self._server = await asyncio.start_server(self._accepted, host, 0)
        self.port = self._server.sockets[0].getsockname()[1]

    def set_target(self, host: str, port: int) -> None:
        """Forward new connections to this address."""
        self._target = (host, port)

    async def stop(self) -> None:
        """Cut all connections and stop listening."""
        if self._server is not None:
            self._server.close()
        self.drop()
        await self._connections.cancel()

    def drop(self, share: float = 1.0) -> int:
        """Cut connections, each with this probability; returns how many."""
        chosen = [writer for writer in self._writers if self._chance.random() < share]
        for writer in chosen:
            writer.transport.abort()
        return len(chosen)

    def hold(self, code: int) -> None:
        """Hold requests with this code, and everything after them on their connections.

        TLS connections are not affected: their requests cannot be read.
        """
        self._held.setdefault(code, asyncio.Event())

    def release(self, code: int) -> None:
        """Forward held requests, even if their sender has disconnected."""
        held = self._held.pop(code, None)
        if held is not None:
            held.set()

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refuses or self._target is None:
            writer.transport.abort()
            return
        self._connections.start(self._connect(reader, writer), name="relayed connection")

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert self._target is not None
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            return
        self._writers.add(writer)
        try:
            requests = asyncio.ensure_future(self._forward_requests(reader, far_writer))
            replies = asyncio.ensure_future(self._forward(far_reader, writer))
            try:
                await asyncio.wait((requests, replies), return_when=asyncio.FIRST_COMPLETED)
            finally:
                requests.cancel()
                replies.cancel()
                await asyncio.wait((requests, replies))
        finally:
            self._writers.discard(writer)
            writer.transport.abort()
            far_writer.transport.abort()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while chunk := await reader.read(_CHUNK_BYTES):
                await self._write(chunk, writer)

    async def _forward_requests(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Forward frame by frame; anything else unseen."""
        pending = bytearray()
        with contextlib.suppress(OSError):
            while chunk := await reader.read(_CHUNK_BYTES):
                pending += chunk
                try:
                    while 0 < (end := frame_end(pending, 0)) <= len(pending):
                        frame = bytes(pending[:end])
                        await self._wait_for_release(frame)
                        await self._write(frame, writer)
                        del pending[:end]
                except ProtocolError:
                    break
            await self._write(bytes(pending), writer)
            await self._forward(reader, writer)

    async def _wait_for_release(self, frame: bytes) -> None:
        """Return once a frame may be forwarded."""
        if self._held:
            command = decode_frame(frame)
            if not command.is_response and command.code in self._held:
                await self._held[command.code].wait()

    async def _write(self, chunk: bytes, writer: asyncio.StreamWriter) -> None:
        if self.delay_ms or self.jitter_ms:
            await self._clock.sleep_ms(self.delay_ms + self._chance.random() * self.jitter_ms)
        writer.write(chunk)
        await writer.drain()
