"""A link from one party of a cluster to another: a TCP proxy whose faults change while it runs.

The opener connects to the link's address, the link to its target. What it passes are raw bytes, so
any protocol will do, that of replication included (`tests/integration/client/fault_proxy.py` knows
frames of requests only). Faults act on one direction or on both:

    cut        ends the open connections, in order (FIN) or not (RST)
    refuse     new connections are refused; open ones stay
    delay      bytes arrive later
    slow       so many bytes a second
    hold       nothing arrives before the link is healed; then everything does, as TCP resends it
    drop       what is sent vanishes, ends of connections included; they stay up, and stay deaf in
               that direction after the link is healed, since TCP has no gaps
    half-open  one side sees its connections reset, the other side sees nothing
    heal       ends all of them

A direction has one of these at a time, the last that was asked for.
While a link holds or drops, a new connection waits: its first packet would not arrive either.
A link to a name server can replace addresses in its replies, so that what the opener learns there
leads it to links again.

Threads: one event loop, that of the test. Servers behind links are processes of their own.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from orbitmq.clock import SystemClock, settle
from orbitmq.lifecycle import OwnedTasks

# A delayed link passes at most one chunk per delay: large, so that it is late rather than slow.
_CHUNK_BYTES: Final = 1 << 20
_SLICES_PER_SECOND: Final = 50
_FRAME_HEAD_BYTES: Final = 4
_END_WITH_RESET: Final = struct.pack("ii", 1, 0)
_CLOCK: Final = SystemClock()


class Direction(Enum):
    """Which way bytes go."""

    THERE = "to the target"
    BACK = "to the opener"


BOTH: Final = tuple(Direction)


class Side(Enum):
    """One end of a link."""

    OPENER = "opener"
    TARGET = "target"


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """What happens to the bytes of one direction."""

    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    # 0 means as fast as they come.
    bytes_per_second: float = 0.0
    holds: bool = False
    drops: bool = False


GOOD: Final = Condition()


@dataclass(slots=True, eq=False)
class _Relayed:
    """A connection of the opener and the one to the target that belongs to it."""

    near: asyncio.StreamWriter
    far: asyncio.StreamWriter
    # Directions that lost bytes, and so pass nothing any more.
    deaf: set[Direction] = field(default_factory=set)

    def sink(self, direction: Direction) -> asyncio.StreamWriter:
        """Where the bytes of a direction go."""
        return self.far if direction is Direction.THERE else self.near


class Link:
    """Listens at `address`, which never changes, and passes bytes to and from a target."""

    def __init__(
        self,
        name: str,
        target: str,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        renames: Mapping[str, str] | None = None,
        seed: int = 0,
    ) -> None:
        """Make a link; `start` listens, at a free port unless one is given."""
        self.name = name
        self.target = target
        self.host = host
        self.port = port
        # How many connections there were, how many bytes of each direction passed or were dropped.
        self.counts: Counter[str] = Counter()
        self._renames: dict[bytes, bytes] = {}
        self.rename(renames or {})
        self._chance = random.Random(f"{name} {seed}")
        self._conditions = dict.fromkeys(Direction, GOOD)
        self._changed = asyncio.Event()
        self._listening: socket.socket | None = None
        # Reserves the port while nobody listens at it.
        self._holding: socket.socket | None = None
        self._relayed: set[_Relayed] = set()
        self._tasks = OwnedTasks()

    @property
    def address(self) -> str:
        """Where the opener connects."""
        assert self.port, f"the link {self.name} was not started"
        return f"{self.host}:{self.port}"

    @property
    def open_connections(self) -> int:
        """How many connections it passes bytes of."""
        return len(self._relayed)

    @property
    def is_healthy(self) -> bool:
        """Whether it passes everything."""
        return self._listening is not None and all(
            condition is GOOD for condition in self._conditions.values()
        )

    def rename(self, addresses: Mapping[str, str]) -> None:
        """Replace these addresses in replies from now on; the replies must be frames of requests."""
        for old, new in addresses.items():
            # A frame starts with its length, which must stay right.
            assert len(old) == len(new), (old, new)
            self._renames[old.encode()] = new.encode()

    # --- life ---------------------------------------------------------------------------------

    async def start(self) -> None:
        """Listen; returns once connections are accepted."""
        self._listen()

    async def stop(self) -> None:
        """Close everything."""
        self._stop_listening()
        self._release_port()
        self.cut(reset=True)
        # What was accepted last starts to be served, and so closes its connection when cancelled.
        await settle(1)
        await self._tasks.cancel()

    # --- faults -------------------------------------------------------------------------------

    def cut(self, *, reset: bool) -> int:
        """End every open connection on both sides; returns how many there were."""
        ended = list(self._relayed)
        for relayed in ended:
            self._relayed.discard(relayed)
            relayed.deaf |= set(Direction)
            for writer in (relayed.near, relayed.far):
                _end(writer, reset=reset)
        self._wake()
        return len(ended)

    def refuse(self) -> None:
        """Refuse new connections; open ones stay."""
        if self._listening is not None:
            self._stop_listening()
            self._reserve_port()

    def accept(self) -> None:
        """Accept new connections again; other faults stay."""
        if self._listening is None:
            self._listen()

    def delay(
        self, delay_ms: float, jitter_ms: float = 0.0, directions: Collection[Direction] = BOTH
    ) -> None:
        """Delay bytes by this, plus a random part of the jitter."""
        self._change(directions, Condition(delay_ms=delay_ms, jitter_ms=jitter_ms))

    def slow(self, bytes_per_second: float, directions: Collection[Direction] = BOTH) -> None:
        """Pass so many bytes a second at most."""
        self._change(directions, Condition(bytes_per_second=bytes_per_second))

    def hold(self, directions: Collection[Direction] = BOTH) -> None:
        """Pass nothing until the link is healed."""
        self._change(directions, Condition(holds=True))

    def drop(self, directions: Collection[Direction] = BOTH) -> None:
        """Make everything vanish that is sent from now on; connections stay up."""
        self._change(directions, Condition(drops=True))

    def half_open(self, told: Side) -> int:
        """Reset all connections on one side; the other sees nothing. Returns how many there were."""
        ended = list(self._relayed)
        for relayed in ended:
            # Deaf first: that one side is gone must not reach the other.
            relayed.deaf |= set(Direction)
            _end(relayed.near if told is Side.OPENER else relayed.far, reset=True)
        return len(ended)

    def heal(self) -> None:
        """Accept connections, and pass everything from now on."""
        self.accept()
        self._change(BOTH, GOOD)

    def _change(self, directions: Collection[Direction], condition: Condition) -> None:
        for direction in directions:
            self._conditions[direction] = condition
            if condition.drops:
                for relayed in self._relayed:
                    relayed.deaf.add(direction)
        self._wake()

    def _wake(self) -> None:
        """Have everything that waits look again."""
        self._changed.set()
        self._changed = asyncio.Event()

    # --- listening ----------------------------------------------------------------------------

    def _listen(self) -> None:
        # Not a server of asyncio: that loses a connection which it accepts just before it is closed.
        listening = self._listening = socket.create_server((self.host, self.port))
        listening.setblocking(False)
        self.port = listening.getsockname()[1]
        asyncio.get_running_loop().add_reader(listening, self._accept, listening)
        self._release_port()

    def _stop_listening(self) -> None:
        if self._listening is not None:
            asyncio.get_running_loop().remove_reader(self._listening)
            self._listening.close()
            self._listening = None

    def _reserve_port(self) -> None:
        self._holding = socket.socket()
        self._holding.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._holding.bind((self.host, self.port))

    def _release_port(self) -> None:
        if self._holding is not None:
            self._holding.close()
            self._holding = None

    def _accept(self, listening: socket.socket) -> None:
        try:
            connection, _ = listening.accept()
        except (BlockingIOError, ConnectionError):
            # It was closed before it was accepted.
            return
        self.counts["connections"] += 1
        self._tasks.start(self._serve(connection), name=f"connection of {self.name}")

    # --- one connection -----------------------------------------------------------------------

    async def _serve(self, connection: socket.socket) -> None:
        reader, near = await asyncio.open_connection(sock=connection, limit=_CHUNK_BYTES)
        try:
            await self._until(lambda: not any(map(_is_silent, self._conditions.values())))
            await self._relay(reader, near)
        finally:
            near.transport.abort()

    async def _relay(self, reader: asyncio.StreamReader, near: asyncio.StreamWriter) -> None:
        host, _, port = self.target.rpartition(":")
        try:
            far_reader, far = await asyncio.open_connection(host, int(port), limit=_CHUNK_BYTES)
        except OSError:
            # The target is down: the opener sees its connection reset at once.
            self.counts["unreachable"] += 1
            _end(near, reset=True)
            return
        relayed = _Relayed(near, far)
        self._relayed.add(relayed)
        try:
            async with asyncio.TaskGroup() as pumps:
                pumps.create_task(self._pump(relayed, reader, Direction.THERE))
                pumps.create_task(self._pump(relayed, far_reader, Direction.BACK))
        finally:
            self._relayed.discard(relayed)
            far.transport.abort()

    async def _pump(
        self, relayed: _Relayed, source: asyncio.StreamReader, direction: Direction
    ) -> None:
        """Pass bytes of one direction until their end, and the end as well."""
        sink = relayed.sink(direction)
        is_framed = bool(self._renames) and direction is Direction.BACK
        reset = False
        try:
            while chunk := await (self._frame(source) if is_framed else source.read(_CHUNK_BYTES)):
                if not await self._pass_on(relayed, direction, chunk):
                    self.counts[f"bytes dropped {direction.value}"] += len(chunk)
        except ConnectionError:
            reset = True
        if not await self._may_pass(relayed, direction):
            # Nobody hears of this end; what comes the other way may still arrive.
            return
        if reset or sink.transport.is_closing():
            self._relayed.discard(relayed)
            _end(relayed.near, reset=reset)
            _end(relayed.far, reset=reset)
        else:
            with contextlib.suppress(OSError):
                sink.write_eof()

    async def _frame(self, source: asyncio.StreamReader) -> bytes:
        """Read a frame of the remoting protocol, and replace addresses; empty at the end."""
        try:
            head = await source.readexactly(_FRAME_HEAD_BYTES)
            frame = head + await source.readexactly(int.from_bytes(head, "big"))
        except asyncio.IncompleteReadError:
            return b""
        for old, new in self._renames.items():
            frame = frame.replace(old, new)
        return frame

    async def _may_pass(self, relayed: _Relayed, direction: Direction) -> bool:
        """Wait while the link holds; returns False if what comes is lost."""
        await self._until(
            lambda: direction in relayed.deaf or not self._conditions[direction].holds
        )
        return direction not in relayed.deaf

    async def _pass_on(self, relayed: _Relayed, direction: Direction, chunk: bytes) -> bool:
        """Write bytes as the link's condition has it; False if they are lost."""
        delayed_by = self._conditions[direction]
        if delayed_by.delay_ms or delayed_by.jitter_ms:
            late_ms = delayed_by.delay_ms + self._chance.random() * delayed_by.jitter_ms
            await self._pause(late_ms, direction, delayed_by)
        rest = memoryview(chunk)
        while rest:
            if not await self._may_pass(relayed, direction):
                return False
            condition = self._conditions[direction]
            count = len(rest)
            if condition.bytes_per_second:
                count = max(1, int(condition.bytes_per_second / _SLICES_PER_SECOND))
            await self._write(relayed, direction, bytes(rest[:count]))
            if condition.bytes_per_second:
                wait_ms = 1000 * min(count, len(rest)) / condition.bytes_per_second
                await self._pause(wait_ms, direction, condition)
            rest = rest[count:]
        return True

    async def _write(self, relayed: _Relayed, direction: Direction, part: bytes) -> None:
        sink = relayed.sink(direction)
        # Counted first: the receiver may look at the counts at once.
        self.counts[f"bytes passed {direction.value}"] += len(part)
        sink.write(part)
        await sink.drain()

    # --- waiting ------------------------------------------------------------------------------

    async def _until(self, reached: Callable[[], bool]) -> None:
        """Return once the link is in some state."""
        while not reached():
            await self._changed.wait()

    async def _pause(self, wait_ms: float, direction: Direction, condition: Condition) -> None:
        """Wait, but no longer than the condition lasts."""
        end_ms = _CLOCK.monotonic_ms() + wait_ms
        while self._conditions[direction] is condition:
            left_ms = end_ms - _CLOCK.monotonic_ms()
            if left_ms <= 0:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left_ms / 1000):
                    await self._changed.wait()


def _is_silent(condition: Condition) -> bool:
    return condition.holds or condition.drops


def _end(writer: asyncio.StreamWriter, *, reset: bool) -> None:
    if not reset:
        # Sends what was written, then the end of the stream.
        writer.close()
        return
    with contextlib.suppress(OSError):
        writer.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, _END_WITH_RESET
        )
    writer.transport.abort()
