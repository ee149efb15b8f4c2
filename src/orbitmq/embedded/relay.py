"""A relay in front of a broker, which can drop, delay and refuse connections.

Threads: one event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import Final

from orbitmq.clock import SystemClock
from orbitmq.lifecycle import OwnedTasks

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
            there = asyncio.ensure_future(self._pass_on(reader, far_writer))
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
                if self.delay_ms or self.jitter_ms:
                    await self._clock.sleep_ms(
                        self.delay_ms + self._chance.random() * self.jitter_ms
                    )
                writer.write(chunk)
                await writer.drain()
