"""A fault proxy: sits in front of a server and injects faults, which can change while it runs.

It knows frames, so it can cut one in the middle, and counts what it did. Its random choices come
from a seed. A proxy in front of a name server can replace the addresses of brokers in replies
(`renames`), so that traffic to brokers goes through proxies, too.

Threads: a thread and event loop of its own, so that neither a blocked test nor a blocked client
stalls it. Every method may be called from any thread, and returns once it has taken effect.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
import threading
from collections import Counter
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Self, TypeVar

from orbitmq.clock import SystemClock, settle

Result = TypeVar("Result")

CONTROL_TIMEOUT_S: Final = 60.0
_CLOCK: Final = SystemClock()
_SLICES_PER_SECOND: Final = 50
_END_WITH_RESET: Final = struct.pack("ii", 1, 0)


class Direction(Enum):
    """The direction of a frame."""

    REQUEST = "request"
    REPLY = "reply"


class End(Enum):
    """What happens to the connection after a frame."""

    NONE = "passed"
    CLOSE = "cut"
    RESET = "reset"


@dataclass(frozen=True, slots=True, kw_only=True)
class Treatment:
    """What happens to one frame."""

    delay_ms: float = 0.0
    # How many of its bytes get through; None means all.
    passed_bytes: int | None = None
    bytes_per_second: float = 0.0
    end: End = End.NONE


UNHARMED: Final = Treatment()
SWALLOWED: Final = Treatment(passed_bytes=0)


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault; this one does nothing."""

    def treat(self, direction: Direction, frame_bytes: int, chance: random.Random) -> Treatment:  # noqa: ARG002  # the kinds need them
        """Decide what happens to a frame."""
        return UNHARMED


@dataclass(frozen=True, slots=True)
class Delay(Fault):
    """Delays each reply by a time between two bounds."""

    low_ms: float
    high_ms: float

    def treat(self, direction: Direction, frame_bytes: int, chance: random.Random) -> Treatment:  # noqa: ARG002
        """Delay replies."""
        if direction is Direction.REQUEST:
            return UNHARMED
        return Treatment(delay_ms=chance.uniform(self.low_ms, self.high_ms))


@dataclass(frozen=True, slots=True)
class Cut(Fault):
    """Ends the connection within a frame, for a share of the frames of one direction."""

    direction: Direction = Direction.REPLY
    share: float = 1.0
    # Where in the frame; None means anywhere.
    after_bytes: int | None = None
    end: End = End.CLOSE

    def treat(self, direction: Direction, frame_bytes: int, chance: random.Random) -> Treatment:
        """Pass a part and end the connection."""
        if direction is not self.direction or chance.random() >= self.share:
            return UNHARMED
        passed = chance.randrange(frame_bytes) if self.after_bytes is None else self.after_bytes
        return Treatment(passed_bytes=passed, end=self.end)


@dataclass(frozen=True, slots=True)
class BlackHole(Fault):
    """Accepts connections and keeps them open, but drops all frames, or those of one direction."""

    direction: Direction | None = None

    def treat(self, direction: Direction, frame_bytes: int, chance: random.Random) -> Treatment:  # noqa: ARG002
        """Drop the frame."""
        return SWALLOWED if self.direction in {None, direction} else UNHARMED


@dataclass(frozen=True, slots=True)
class Throttle(Fault):
    """Limits the bytes per second of replies."""

    bytes_per_second: float

    def treat(self, direction: Direction, frame_bytes: int, chance: random.Random) -> Treatment:  # noqa: ARG002
        """Slow replies down."""
        if direction is Direction.REQUEST:
            return UNHARMED
        return Treatment(bytes_per_second=self.bytes_per_second)


@dataclass(frozen=True, slots=True)
class Refuse(Fault):
    """Refuses and ends connections, as if the server's process were gone."""


@dataclass(frozen=True, slots=True)
class Weather(Fault):
    """A mixture: each frame gets one of several faults, by weight."""

    faults: tuple[tuple[Fault, float], ...]

    def treat(self, direction: Direction, frame_bytes: int, chance: random.Random) -> Treatment:
        """Choose a fault, which decides."""
        kinds = [fault for fault, _ in self.faults]
        weights = [weight for _, weight in self.faults]
        (fault,) = chance.choices(kinds, weights)
        return fault.treat(direction, frame_bytes, chance)


PASS: Final = Fault()
CUT_REPLY: Final = Cut(Direction.REPLY)
CUT_REQUEST: Final = Cut(Direction.REQUEST)
RESET: Final = Cut(Direction.REQUEST, after_bytes=0, end=End.RESET)
BLACK_HOLE: Final = BlackHole()
REFUSE: Final = Refuse()


class FaultProxy:
    """Listens at `address`, which never changes, and passes frames to and from a target."""

    def __init__(
        self, target: str, *, seed: int = 0, renames: Mapping[str, str] | None = None
    ) -> None:
        self.target = target
        self.port = 0
        # How many frames passed, were cut, and so on; and how many connections were accepted.
        self.counts: Counter[str] = Counter()
        self._renames = {old.encode(): new.encode() for old, new in (renames or {}).items()}
        for old, new in self._renames.items():
            # A frame starts with its length, which must stay right.
            assert len(old) == len(new), (old, new)
        self._chance = random.Random(seed)
        self._fault: Fault = PASS
        self._listening: socket.socket | None = None
        # Reserves the port while the proxy does not listen.
        self._holding: socket.socket | None = None
        self._open: dict[asyncio.StreamWriter, asyncio.StreamWriter] = {}
        self._frozen: set[asyncio.StreamWriter] = set()
        self._pumps: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=f"proxy of {target}", daemon=True)

    @property
    def address(self) -> str:
        """Where clients connect."""
        assert self.port, "the proxy was not started"
        return f"127.0.0.1:{self.port}"

    def start(self) -> Self:
        """Listen; returns once connections are accepted."""
        self._thread.start()
        self._on_loop(self._listen())
        return self

    def stop(self) -> None:
        """Close everything, and end the thread."""
        if not self._thread.is_alive():
            return
        self._on_loop(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CONTROL_TIMEOUT_S)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def inflict(self, fault: Fault) -> None:
        """Inject this fault from the next frame on, on every connection."""
        self._on_loop(self._inflict(fault))

    def heal(self) -> None:
        """Inject no fault from now on."""
        self.inflict(PASS)

    def cut(self, *, reset: bool = False) -> int:
        """End every open connection now; returns how many there were."""
        return self._on_loop(self._cut(reset=reset))

    def freeze(self) -> int:
        """Drop everything on the connections open now, but not on new ones; returns how many.

        To a client the machine of its peer is gone: the connection never closes.
        """
        return self._on_loop(self._freeze())

    # --- on the loop of the proxy ---------------------------------------------------------------

    def _run(self) -> None:
        self._loop.run_forever()
        self._loop.close()

    def _on_loop(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(CONTROL_TIMEOUT_S)

    async def _listen(self) -> None:
        # Not a server of asyncio: that loses a connection which it accepts just before it is closed.
        listening = self._listening = socket.create_server(("127.0.0.1", self.port))
        listening.setblocking(False)
        self.port = listening.getsockname()[1]
        self._loop.add_reader(listening, self._accept, listening)
        self._release_port()

    def _stop_listening(self) -> None:
        if self._listening is not None:
            self._loop.remove_reader(self._listening)
            self._listening.close()
            self._listening = None

    def _reserve_port(self) -> None:
        self._holding = socket.socket()
        self._holding.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._holding.bind(("127.0.0.1", self.port))

    def _release_port(self) -> None:
        if self._holding is not None:
            self._holding.close()
            self._holding = None

    async def _end(self) -> None:
        await self._cut(reset=False)
        self._release_port()
        self._stop_listening()
        # What was accepted last starts to be served, and so closes its connection when cancelled.
        await settle(1)
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)

    async def _inflict(self, fault: Fault) -> None:
        self._fault = fault
        if isinstance(fault, Refuse):
            if self._listening is not None:
                self._stop_listening()
                self._reserve_port()
            await self._cut(reset=True)
        elif self._listening is None:
            await self._listen()

    async def _cut(self, *, reset: bool) -> int:
        ended = list(self._open.items())
        for near, far in ended:
            self._end_pair(near, far, End.RESET if reset else End.CLOSE)
        return len(ended)

    async def _freeze(self) -> int:
        self._frozen |= self._open.keys()
        return len(self._open)

    def _accept(self, listening: socket.socket) -> None:
        try:
            connection, _ = listening.accept()
        except (BlockingIOError, ConnectionError):
            # It was closed before it was accepted.
            return
        self.counts["connections"] += 1
        task = self._loop.create_task(self._serve_connection(connection))
        self._pumps.add(task)
        task.add_done_callback(self._pumps.discard)

    async def _serve_connection(self, connection: socket.socket) -> None:
        reader, writer = await asyncio.open_connection(sock=connection)
        try:
            await self._serve(reader, writer)
        finally:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = self.target.rpartition(":")
        try:
            far_reader, far_writer = await asyncio.open_connection(host, int(port))
        except OSError:
            # The target is down: the client sees a server that closes at once.
            self.counts["unreachable"] += 1
            return
        self._open[writer] = far_writer
        try:
            async with asyncio.TaskGroup() as pumps:
                pumps.create_task(self._pump(reader, far_writer, Direction.REQUEST, writer))
                pumps.create_task(self._pump(far_reader, writer, Direction.REPLY, writer))
        finally:
            self._open.pop(writer, None)
            self._frozen.discard(writer)
            far_writer.transport.abort()

    async def _pump(
        self,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        direction: Direction,
        near: asyncio.StreamWriter,
    ) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await source.readexactly(4)
                frame = head + await source.readexactly(int.from_bytes(head, "big"))
                if direction is Direction.REPLY:
                    for old, new in self._renames.items():
                        frame = frame.replace(old, new)
                fault = BLACK_HOLE if near in self._frozen else self._fault
                treatment = fault.treat(direction, len(frame), self._chance)
                # Counted first: the receiver may look at the counts at once.
                self.counts[f"{direction.value} {_name(treatment)}"] += 1
                await self._pass_on(frame, sink, treatment)
                if treatment.end is not End.NONE:
                    self._end_pair(near, self._open.get(near), treatment.end)
                    return
        # One side closed: close the other.
        self._end_pair(near, self._open.get(near), End.CLOSE)

    async def _pass_on(
        self, frame: bytes, sink: asyncio.StreamWriter, treatment: Treatment
    ) -> None:
        if treatment.delay_ms:
            await _CLOCK.sleep_ms(treatment.delay_ms)
        passed = frame[: treatment.passed_bytes]
        if not treatment.bytes_per_second:
            sink.write(passed)
            await sink.drain()
            return
        slice_bytes = max(1, int(treatment.bytes_per_second / _SLICES_PER_SECOND))
        throttled_by = self._fault
        for start in range(0, len(passed), slice_bytes):
            if self._fault is not throttled_by:
                # Healed: pass the rest.
                sink.write(passed[start:])
                break
            sink.write(passed[start : start + slice_bytes])
            await sink.drain()
            await _CLOCK.sleep_ms(1000 * slice_bytes / treatment.bytes_per_second)

    def _end_pair(
        self, near: asyncio.StreamWriter, far: asyncio.StreamWriter | None, end: End
    ) -> None:
        self._open.pop(near, None)
        if end is End.RESET:
            with contextlib.suppress(OSError):
                near.get_extra_info("socket").setsockopt(
                    socket.SOL_SOCKET, socket.SO_LINGER, _END_WITH_RESET
                )
            near.transport.abort()
        else:
            # Sends what was written, then the end of the stream.
            near.close()
        if far is not None:
            far.transport.abort()


def _name(treatment: Treatment) -> str:
    if treatment.end is not End.NONE:
        return str(treatment.end.value)
    if treatment.passed_bytes == 0:
        return "swallowed"
    if treatment.delay_ms or treatment.bytes_per_second:
        return "slowed"
    return "passed"


def proxied(
    name_server: str, brokers: list[str], *, seed: int = 0
) -> tuple[FaultProxy, list[FaultProxy]]:
    """Start proxies in front of a name server and its brokers; clients use only proxies."""
    before_brokers = [FaultProxy(broker, seed=seed + n).start() for n, broker in enumerate(brokers)]
    renames = {proxy.target: proxy.address for proxy in before_brokers}
    return FaultProxy(name_server, seed=seed - 1, renames=renames).start(), before_brokers
