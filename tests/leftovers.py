"""What a test leaves behind: threads, tasks and descriptors, waited for until they are gone.

A process runs many tests one after the other: a thread of an earlier one may end during this one,
and a loop's own executor grows whenever somebody uses it. So nothing is counted: checks look for
what was started since a moment, and give it time to end, since the machine may be busy.
"""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from orbitmq.clock import SystemClock

WAIT_SECONDS: Final = 30
_PAUSE_SECONDS: Final = 0.01
# Threads of a loop's default executor, which ends with the loop, whoever used it.
_OF_LOOPS: Final = ("asyncio_", "uvloop_")
_DESCRIPTORS: Final = Path("/proc/self/fd")

Descriptor = tuple[int, str]


def threads(named: str = "") -> set[threading.Thread]:
    """The threads that run, but for those of loops; only those whose names begin so, if asked."""
    return {
        each
        for each in threading.enumerate()
        if each.name.startswith(named) and not each.name.startswith(_OF_LOOPS)
    }


def no_threads_since(before: set[threading.Thread], named: str = "") -> None:
    """Return once all threads started since have ended."""
    _until_empty(lambda: sorted(each.name for each in threads(named) - before))


async def no_threads_on_loop_since(before: set[threading.Thread], named: str = "") -> None:
    """Return once all threads started since have ended, without blocking the loop."""
    await asyncio.to_thread(no_threads_since, before, named)


async def no_tasks_since(before: set[asyncio.Task[object]]) -> None:
    """Return once all tasks started since are done, except the calling one."""
    asks = asyncio.current_task()
    left = {each for each in asyncio.all_tasks() - before if each is not asks}
    if left:
        _, left = await asyncio.wait(left, timeout=WAIT_SECONDS)
    assert sorted(each.get_name() for each in left) == []


def descriptors(of: Path | str = "") -> set[Descriptor]:
    """The open descriptors with what each stands for: a path, or the number of a socket.

    Only files in a folder, if asked: what other threads of the process open is left out.
    """
    found = set()
    for each in _DESCRIPTORS.iterdir():
        try:
            target = str(each.readlink())
        except FileNotFoundError:  # closed since; that of the listing itself always is
            continue
        if target.startswith(str(of)):
            found.add((int(each.name), target))
    return found


def is_in(folder: Path, descriptor: int) -> bool:
    """Whether a descriptor is that of a file in a folder."""
    return (_DESCRIPTORS / str(descriptor)).readlink().is_relative_to(folder)


def no_descriptors_since(before: set[Descriptor], of: Path | str = "") -> None:
    """Return once all descriptors that came since are closed."""

    def left() -> list[Descriptor]:
        gc.collect()  # some are held by what nobody holds
        return sorted(descriptors(of) - before)

    _until_empty(left)


def _until_empty(left: Callable[[], list[str] | list[Descriptor]]) -> None:
    """Ask again and again what is left, for it gives no event; fail by what stays."""
    clock = SystemClock()
    end_ms = clock.monotonic_ms() + WAIT_SECONDS * 1000
    pause = threading.Event()
    while found := left():
        assert clock.monotonic_ms() < end_ms, f"still there after {WAIT_SECONDS} s: {found}"
        pause.wait(_PAUSE_SECONDS)
