"""How fast does an empty slave get the whole log of its master?

    python -m benchmarks.catch_up [--messages N] [--rounds N] [--no-java] [--smoke]

The log fits in one file, since an official master feeds an empty slave its last file only. Measured
from the moment when the slave first has a part of it. Beside it: the same log sent over loopback and
thrown away there, and written to the disk and synced, by a few lines of Python.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
import time
from pathlib import Path
from typing import Final

import psutil

from benchmarks.brokers import QUEUES
from benchmarks.load import cpu_seconds
from benchmarks.pairs import (
    SLAVE,
    Question,
    Site,
    ask,
    fill,
    log_end,
    prepare_broker,
    seconds_until,
    start_broker,
)
from tests.interop import wire

TOPIC: Final = "benchmark_catch_up"
_PIECE_BYTES: Final = 1024 * 1024


def caught_up(site: Site) -> dict[str, float]:
    """Fill a master, start an empty slave, and tell how fast it gets everything."""
    with contextlib.ExitStack() as running:
        master = start_broker(
            running, site.line, site.name, site.folder / "master", site.name_server, {}
        )
        wire.create_topic(master.address, TOPIC, queues=QUEUES)
        asyncio.run(fill(master, TOPIC, site))
        end = log_end(master.address)
        log = min((site.folder / "master" / "store" / "commitlog").iterdir())
        loopback_s, disk_s = _over_loopback(log, end), _to_disk(log, end, site.folder / "written")
        process = psutil.Process(master.process.popen.pid)
        master_before_s = cpu_seconds(process)
        slave = prepare_broker(site.line, site.name, site.folder / "slave", site.name_server, SLAVE)
        running.callback(slave.process.kill)
        started_s = time.perf_counter()
        slave.process.start()
        seconds_until(lambda: _copied(slave.address) > 0, started_s)
        began_s, had = time.perf_counter(), _copied(slave.address)
        seconds_until(lambda: _copied(slave.address) >= end, started_s)
        elapsed_s = time.perf_counter() - began_s
        return {
            "copied_mb_s": (end - had) / elapsed_s / 1e6,
            "first_mb": had / 1e6,
            "since_start_s": time.perf_counter() - started_s,
            "loopback_mb_s": end / loopback_s / 1e6,
            "disk_mb_s": end / disk_s / 1e6,
            "master_cpu_s_per_gb": (cpu_seconds(process) - master_before_s) / end * 1e9,
            "slave_cpu_s_per_gb": cpu_seconds(psutil.Process(slave.process.popen.pid)) / end * 1e9,
        }


def _copied(address: str) -> int:
    """How much of the log a slave has; nothing while it starts."""
    with contextlib.suppress(OSError, KeyError, TypeError):
        return log_end(address)
    return 0


def _over_loopback(log: Path, size: int) -> float:
    """Seconds that the first bytes of a file take to somebody who throws them away."""

    def receive(connection: socket.socket) -> None:
        room = bytearray(_PIECE_BYTES)
        while connection.recv_into(room):
            pass

    with socket.create_server(("127.0.0.1", 0)) as server:
        sending = socket.create_connection(server.getsockname())
        receiving, _ = server.accept()
    with sending, receiving, log.open("rb") as file:
        receiver = threading.Thread(target=receive, args=(receiving,))
        receiver.start()
        began_s = time.perf_counter()
        sending.sendfile(file, 0, size)
        sending.shutdown(socket.SHUT_WR)
        receiver.join()
        return time.perf_counter() - began_s


def _to_disk(log: Path, size: int, target: Path) -> float:
    """Seconds that it takes to write the first bytes of a file to the disk."""
    with log.open("rb") as source, target.open("wb", buffering=0) as file:
        began_s = time.perf_counter()
        while size > 0:
            piece = source.read(min(_PIECE_BYTES, size))
            file.write(piece)
            size -= len(piece)
        os.fdatasync(file.fileno())
        elapsed_s = time.perf_counter() - began_s
    target.unlink()
    return elapsed_s


QUESTION: Final = Question(
    name="catch_up",
    description="Compare how fast empty slaves catch up.",
    measure=caught_up,
    columns={
        "copied_mb_s": ("copied MB/s", 0),
        "loopback_mb_s": ("loopback MB/s", 0),
        "disk_mb_s": ("disk MB/s", 0),
        "master_cpu_s_per_gb": ("master CPU s/GB", 2),
        "slave_cpu_s_per_gb": ("slave CPU s/GB, with its start", 2),
        "since_start_s": ("s since the slave's start", 1),
    },
    messages=600_000,
    # Enough for a log that is not there at once.
    smoke_messages=20_000,
)

if __name__ == "__main__":
    ask(QUESTION)
