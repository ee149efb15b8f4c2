"""A relay before a broker: drops, delays, refuses connections, holds requests.

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
    """Passes bytes on between clients and one broker."""

    def __init__(self, *, chance: random.Random) -> None:
        self._chance = chance
        self._target: tuple[str, int] | None = None
        self._server: asyncio.Server | None = None
        self._ways = OwnedTasks()
        self._writers: set[asyncio.StreamWriter] = set()
        self._clock = SystemClock()
        self.port = 0
        # Every chunk waits this long, and up to so much longer by chance.
        self.delay_ms = 0.0
        self.jitter_ms = 0.0
        self.refuses = False
        # What requests wait for, by their codes.
        self._held: dict[int, asyncio.Event] = {}

    async def start(self, host: str) -> None:
        """Listen on a free port."""
        self._server = await asyncio.start_server(self._accepted, host, 0)
        self.port = self._server.sockets[0].getsockname()[1]

    def lead_to(self, host: str, port: int) -> None:
        """Pass what comes from now on to this address."""
        self._target = (host, port)

    async def stop(self) -> None:
        """Cut everything and listen no more."""
        if self._server is not None:
            self._server.close()
        self.drop()
        await self._ways.cancel()

    def drop(self, share: float = 1.0) -> int:
        """Cut connections, each with this chance; how many were cut."""
        chosen = [writer for writer in self._writers if self._chance.random() < share]
        for writer in chosen:
            writer.transport.abort()
        return len(chosen)

    def hold(self, code: int) -> None:
        """Let requests of a kind wait from now on, and what comes behind them on their connections.

        What is encrypted passes: nobody sees what it is.
        """
        self._held.setdefault(code, asyncio.Event())

    def let_go(self, code: int) -> None:
        """Pass on what was held; it arrives also if whoever sent it has gone."""
        held = self._held.pop(code, None)
        if held is not None:
            held.set()

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refuses or self._target is None:
            writer.transport.abort()
            return
        self._ways.start(self._join(reader, writer), name="relayed connection")

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert self._target is not None
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            return
        self._writers.add(writer)
        try:
            there = asyncio.ensure_future(self._pass_requests_on(reader, far_writer))
            back = asyncio.ensure_future(self._pass_on(far_reader, writer))
            try:
                await asyncio.wait((there, back), return_when=asyncio.FIRST_COMPLETED)
            finally:
                there.cancel()
                back.cancel()
                await asyncio.wait((there, back))
        finally:
            self._writers.discard(writer)
            writer.transport.abort()
            far_writer.transport.abort()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while chunk := await reader.read(_CHUNK_BYTES):
                await self._write(chunk, writer)

    async def _pass_requests_on(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Pass on frame by frame, as long as it is frames that come."""
        begun = bytearray()
        with contextlib.suppress(OSError):
            while chunk := await reader.read(_CHUNK_BYTES):
                begun += chunk
                try:
                    while 0 < (end := frame_end(begun, 0)) <= len(begun):
                        frame = bytes(begun[:end])
                        await self._let_go_of(frame)
                        await self._write(frame, writer)
                        del begun[:end]
                except ProtocolError:
                    break
            await self._write(bytes(begun), writer)
            await self._pass_on(reader, writer)

    async def _let_go_of(self, frame: bytes) -> None:
        """Return when a frame may go on."""
        if self._held:
            command = decode_frame(frame)
            if not command.is_response and command.code in self._held:
                await self._held[command.code].wait()

    async def _write(self, chunk: bytes, writer: asyncio.StreamWriter) -> None:
        if self.delay_ms or self.jitter_ms:
            await self._clock.sleep_ms(self.delay_ms + self._chance.random() * self.jitter_ms)
        writer.write(chunk)
        await writer.drain()
