"""Runs the load generator: compiles it when needed, and measures a server while it is under load."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import psutil

from orbitmq.protocol.command import Command
from orbitmq.protocol.frame import Encoding

HERE: Final = Path(__file__).parent
SOURCE: Final = HERE / "load_generator.c"
CACHE: Final = HERE.parent / ".cache"

CALLS_MAX: Final = 500_000_000
_COMPILE_TIMEOUT_S: Final = 60
_READY_TIMEOUT_S: Final = 60
# Beside the load itself: the last replies, and a machine that is busy with something else.
_EXTRA_S: Final = 60
_FIRST_OPAQUE: Final = 100_000_000
_BINARY_OPAQUE_AT: Final = 13


class LoadError(Exception):
    """The load generator cannot be compiled, or found a mistake of the server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """How a server is loaded."""

    name: str
    connections: int
    in_flight: int
    encoding: Encoding


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """What one stretch of load showed."""

    calls: int
    seconds: float
    server_cpu_seconds: float
    generator_cpu_seconds: float
    p50_us: float
    p99_us: float
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
    seconds: float
    errors: int
    p50_us: float
    p99_us: float
    body_bytes: int
    generator_cpu_seconds: float


class Frames:
    """Request frames of equal length in a file, with the place of the opaque in each."""

    def __init__(self, requests: list[Command], file: Path) -> None:
        frames: list[bytes] = []
        for request in requests:
            request.opaque = _FIRST_OPAQUE
            frames.append(request.encode())
        self.file = file
        self.frame_bytes = len(frames[0])
        self.encoding = requests[0].encoding
        if self.encoding is Encoding.JSON:
            self.opaque_at = frames[0].index(str(_FIRST_OPAQUE).encode())
        else:
            self.opaque_at = _BINARY_OPAQUE_AT
        assert {len(frame) for frame in frames} == {self.frame_bytes}
        file.write_bytes(b"".join(frames))


def compiled() -> Path:
    """Compile the load generator unless that is done, and return the program."""
    compiler = shutil.which("cc")
    if compiler is None:
        raise LoadError("the load generator needs a C compiler: cc was not found")
    source_hash = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]
    program = CACHE / f"load_generator-{source_hash}"
    if not program.exists():
        CACHE.mkdir(exist_ok=True)
        half_done = program.with_suffix(f".{os.getpid()}")
        done = subprocess.run(
            [compiler, "-O2", "-Wall", "-Wextra", "-o", str(half_done), str(SOURCE)],
            capture_output=True,
            text=True,
            timeout=_COMPILE_TIMEOUT_S,
            check=False,
        )
        if done.returncode:
            raise LoadError(f"the load generator does not compile\n{done.stderr}")
        half_done.replace(program)
    return program


async def load(
    *,
    port: int,
    server_pid: int,
    workload: Workload,
    frames: Frames,
    seconds: float,
    calls_max: int = CALLS_MAX,
) -> Slice:
    """Load the server on a port of 127.0.0.1, and say what that cost its process."""
    generator = await asyncio.create_subprocess_exec(
        compiled(),
        *(str(part) for part in (port, workload.connections, workload.in_flight)),
        *(str(part) for part in (seconds, calls_max, frames.file, frames.frame_bytes)),
        str(frames.opaque_at),
        frames.encoding.name.lower(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert generator.stdout is not None
        async with asyncio.timeout(_READY_TIMEOUT_S):
            ready = await generator.stdout.readline()
        server = psutil.Process(server_pid)
        cpu_before = cpu_seconds(server)
        async with asyncio.timeout(seconds + _EXTRA_S):
            printed, complaint = await generator.communicate(b"go\n")
        cpu_after = cpu_seconds(server)
    finally:
        if generator.returncode is None:
            generator.kill()
            await generator.wait()
    if generator.returncode or ready != b"ready\n":
        raise LoadError(f"{workload.name}: {complaint.decode().strip()}")
    result = msgspec.json.decode(printed, type=_Printed)
    return Slice(
        calls=result.calls,
        seconds=result.seconds,
        server_cpu_seconds=cpu_after - cpu_before,
        generator_cpu_seconds=result.generator_cpu_seconds,
        p50_us=result.p50_us,
        p99_us=result.p99_us,
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
