"""Drivers killed in mid-batch: started, watched, stopped at the right moment, and ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import psutil

from orbitmq.spark.reading.offsets import Offsets, read_stream_offset
from tests.spark.killed_driver import Query
from tests.spark.streams import CAME_UP_TOO_SLOWLY, STARTS_MAX
from tests.waiting import wait_until

# From the start of a JVM to its first batch, on a busy machine.
START_TIMEOUT_S = 400
END_TIMEOUT_S = 120
STILL_TIMEOUT_S = 5
# States of threads that are stopped or have ended.
STOPPED = frozenset("TtZX")
ROOT = Path(__file__).parents[2]


class EndedByItselfError(Exception):
    """A driver was gone before it was killed."""


class Checkpoint:
    """The checkpoint of a query, read from its files."""

    def __init__(self, query: Query) -> None:
        self.folder = Path(query.checkpoint)

    @property
    def planned(self) -> set[int]:
        """Batches whose end is stored."""
        return self._numbers("offsets")

    @property
    def done(self) -> set[int]:
        """Batches that Spark will not repeat."""
        return self._numbers("commits")

    @property
    def unfinished(self) -> set[int]:
        """Batches that were started and not done: Spark has to repeat them."""
        # In this order: a batch that is done in between must not look unfinished.
        planned = self.planned
        return planned - self.done

    def is_within(self, batch: int) -> bool:
        """Whether the query is now in the middle of this batch or a later one."""
        return max(self.unfinished, default=-1) >= batch

    def has_rows(self, batch: int) -> bool:
        """Whether a batch was planned, with rows to read."""
        try:
            planned = read_stream_offset(self.end(batch))
        except FileNotFoundError:
            return False
        return any(part.rows for part in planned.ranges())

    def end(self, batch: int) -> dict[str, Any]:
        """Where a batch ends, as our source wrote it."""
        lines = (self.folder / "offsets" / str(batch)).read_text().splitlines()
        stored: dict[str, Any] = json.loads(lines[2])
        return stored

    def ends(self, batches: set[int]) -> Offsets:
        """Where the last of some batches ends, queue by queue."""
        return read_stream_offset(self.end(max(batches))).queues if batches else {}

    def _numbers(self, kind: str) -> set[int]:
        return {int(path.name) for path in (self.folder / kind).glob("[0-9]*")}


def kill_when(
    is_time: Callable[[], bool], queries: Sequence[Query], *, log: Path, with_workers: bool = False
) -> None:
    """Run queries in a driver, and kill it at a moment when `is_time` says so.

    Driver and JVM are stopped before the last check, so that it still holds when they are killed.
    Their workers end on their own, unless they are killed `with_workers`; returns when they have
    ended.
    """
    for left in reversed(range(STARTS_MAX)):
        driver = _start_driver(queries, log)
        try:
            wait_until(
                partial(_is_stopped_in_time, driver, is_time),
                timeout_s=START_TIMEOUT_S,
                what="a moment to kill the driver in",
            )
            break
        except EndedByItselfError:
            # Happens on a busy machine; any other reason is a failure of the product.
            if left == 0 or CAME_UP_TOO_SLOWLY not in log.read_text():
                raise AssertionError(f"the driver ended: {log.read_text()[-4000:]}") from None
        finally:
            _kill(driver, with_workers=with_workers)


def _start_driver(queries: Sequence[Query], log: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.spark.killed_driver"]
    with log.open("wb") as output:
        return subprocess.Popen(
            [*command, msgspec.json.encode(queries).decode()],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


def _is_stopped_in_time(driver: subprocess.Popen[bytes], is_time: Callable[[], bool]) -> bool:
    if driver.poll() is not None:
        raise EndedByItselfError
    if not is_time():
        return False
    os.killpg(driver.pid, signal.SIGSTOP)
    if _stands_still(driver.pid) and is_time():
        return True
    os.killpg(driver.pid, signal.SIGCONT)
    return False


def _stands_still(group: int) -> bool:
    """Wait until a stopped process group is idle; False if it cannot be.

    A thread within a system call, such as one that records a batch as done, completes it first. One
    that starts a process waits until that runs, which is stopped as well.
    """
    try:
        wait_until(
            lambda: _threads_of_group(group) <= STOPPED,
            timeout_s=STILL_TIMEOUT_S,
            what="the driver stands still",
        )
    except TimeoutError:
        return False
    return True


def _threads_of_group(group: int) -> set[str]:
    """The states that threads of a process group are in, by the letters of the system."""
    states: set[str] = set()
    leader = psutil.Process(group)
    for process in (leader, *leader.children(recursive=True)):
        # Processes and threads may end meanwhile.
        with suppress(ProcessLookupError):
            if os.getpgid(process.pid) != group:
                continue
            for thread in Path(f"/proc/{process.pid}/task").glob("*/stat"):
                with suppress(FileNotFoundError, ProcessLookupError):
                    states.add(thread.read_text().rpartition(")")[2].split()[0])
    return states


def _kill(driver: subprocess.Popen[bytes], *, with_workers: bool) -> None:
    workers: list[psutil.Process] = []
    with suppress(psutil.NoSuchProcess):
        workers = psutil.Process(driver.pid).children(recursive=True)
    with suppress(ProcessLookupError):
        os.killpg(driver.pid, signal.SIGKILL)
    driver.wait(END_TIMEOUT_S)
    _, left = psutil.wait_procs(workers, 0 if with_workers else END_TIMEOUT_S)
    for worker in left:
        with suppress(psutil.NoSuchProcess):
            worker.kill()
    psutil.wait_procs(left, END_TIMEOUT_S)
