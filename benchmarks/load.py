"""Runs the programs that make load: compiles them when needed, measures a server meanwhile."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import psutil

from orbitmq.protocol.command import Command
from orbitmq.protocol.frame import Encoding

HERE: Final = Path(__file__).parent
GENERATOR: Final = HERE / "load_generator.c"
SHARED_SOURCE: Final = HERE / "wire.h"
CACHE: Final = HERE.parent / ".cache"

CALLS_MAX: Final = 500_000_000
_COMPILE_TIMEOUT_S: Final = 300
_READY_TIMEOUT_S: Final = 120
# Beside the load itself: the last replies, and a machine that is busy with something else.
_EXTRA_S: Final = 120
# What the programs replace in every request: its opaque, and the end of each unique id.
OPAQUE_MARK: Final = 100_000_000
SERIAL_MARK: Final = "#" * 12


class LoadError(Exception):
    """The load generator cannot be compiled, or found a mistake of the server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """How a server is loaded."""

    name: str
    connections: int
    in_flight: int
    encoding: Encoding = Encoding.JSON
    # How many messages one call carries.
    messages: int = 1


class Latencies(msgspec.Struct, frozen=True):
    """How long something took, by the share that took no longer."""

    p50_us: float
    p90_us: float
    p99_us: float
    p999_us: float
    max_us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """What one stretch of load showed."""

    calls: int
    # Made before, to connect; they count for nothing, but what they sent is stored.
    first_calls: int
    seconds: float
    server_cpu_seconds: float
    server_written_bytes: int
    generator_cpu_seconds: float
    latency: Latencies
    body_bytes: int

    @property
    def calls_per_second(self) -> float:
        """How fast the server answered."""
        return self.calls / self.seconds

    @property
    def server_cpu_us_per_call(self) -> float:
        """What a call cost the server."""
        return self.server_cpu_seconds * 1e6 / self.calls


class _Printed(msgspec.Struct):
    """What the load generator prints at its end."""

    calls: int
    first_calls: int
    seconds: float
    body_bytes: int
    generator_cpu_seconds: float
    latency: Latencies


def write_frames(requests: Sequence[Command], file: Path) -> Path:
    """Write the requests that a server is loaded with, in turn, to a file."""
    for request in requests:
        request.opaque = OPAQUE_MARK
    file.write_bytes(b"".join(request.encode() for request in requests))
    return file


def compiled(source: Path = GENERATOR) -> Path:
    """Compile a program that makes load unless that is done, and return it."""
    compiler = shutil.which("cc")
    if compiler is None:
        raise LoadError("the load generator needs a C compiler: cc was not found")
    text = source.read_bytes() + SHARED_SOURCE.read_bytes()
    program = CACHE / f"{source.stem}-{hashlib.sha256(text).hexdigest()[:16]}"
    if not program.exists():
        CACHE.mkdir(exist_ok=True)
        half_done = program.with_suffix(f".{os.getpid()}")
        done = subprocess.run(
            [compiler, "-O2", "-Wall", "-Wextra", "-o", str(half_done), str(source)],
            capture_output=True,
            text=True,
            timeout=_COMPILE_TIMEOUT_S,
            check=False,
        )
        if done.returncode:
            raise LoadError(f"{source.name} does not compile\n{done.stderr}")
        half_done.replace(program)
    return program


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What a program that made load printed, and what that cost the server."""

    printed: bytes
    server_cpu_seconds: float
    server_written_bytes: int


async def run(
    command: Sequence[object],
    *,
    server_pid: int,
    seconds: float,
    what: str,
    settle: Callable[[bytes], None] | None = None,
) -> Run:
    """Run a program that loads a server, and say what that cost the server's process.

    The cost is read once `settle`, given what the program printed, has returned.
    """
    program = await asyncio.create_subprocess_exec(
        *(str(part) for part in command),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert program.stdout is not None
        async with asyncio.timeout(_READY_TIMEOUT_S):
            ready = await program.stdout.readline()
        server = psutil.Process(server_pid)
        cpu_before, written_before = cpu_seconds(server), written_bytes(server)
        async with asyncio.timeout(seconds + _EXTRA_S):
            printed, complaint = await program.communicate(b"go\n")
    finally:
        if program.returncode is None:
            program.kill()
            await program.wait()
    if program.returncode or ready != b"ready\n":
        raise LoadError(f"{what}: {complaint.decode(errors='replace').strip()}")
    if settle is not None:
        settle(printed)
    return Run(
        printed=printed,
        server_cpu_seconds=cpu_seconds(server) - cpu_before,
        server_written_bytes=written_bytes(server) - written_before,
    )


async def load(  # noqa: PLR0913  # by name, from few places
    *,
    port: int,
    server_pid: int,
    workload: Workload,
    frames: Path,
    seconds: float,
    calls_max: int = CALLS_MAX,
    first_serial: int = 0,
    records: int = 0,
    settle: Callable[[int], None] | None = None,
) -> Slice:
    """Load the server on a port of 127.0.0.1, and say what that cost its process.

    `settle` is given the number of calls made, and returns once the server has done its work.
    """

    def settled(printed: bytes) -> None:
        result = msgspec.json.decode(printed, type=_Printed)
        if settle is not None:
            settle(result.calls + result.first_calls)

    made = await run(
        [
            compiled(),
            *(port, workload.connections, workload.in_flight, seconds, calls_max),
            *(frames, first_serial, records),
        ],
        server_pid=server_pid,
        seconds=seconds,
        what=workload.name,
        settle=settled,
    )
    result = msgspec.json.decode(made.printed, type=_Printed)
    return Slice(
        calls=result.calls,
        first_calls=result.first_calls,
        seconds=result.seconds,
        server_cpu_seconds=made.server_cpu_seconds,
        server_written_bytes=made.server_written_bytes,
        generator_cpu_seconds=result.generator_cpu_seconds,
        latency=result.latency,
        body_bytes=result.body_bytes,
    )


def cpu_seconds(process: psutil.Process) -> float:
    """Processor time that a process and its children have used."""
    return sum(
        times.user + times.system
        for times in (
            process.cpu_times(),
            *(child.cpu_times() for child in process.children(recursive=True)),
        )
    )


def written_bytes(process: psutil.Process) -> int:
    """Bytes that a process has given the disk to write, pages of mapped files included."""
    return int(process.io_counters().write_bytes)
