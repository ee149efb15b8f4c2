"""The Python processes in which Spark runs a source.

Spark keeps them for the next task, and collects garbage in them after each one. What that looks at
is nearly all modules, which never become garbage: with NumPy, Arrow and Spark's own it takes 30 to
50 ms of a core for each task, and for each time that a query is planned. Tasks move bytes in pieces
of a megabyte: memory that goes back to the system after each one comes back page by page. Spark ends
them by closing their sockets: after a minute without work, or when a query has enough rows. Over Unix
sockets a worker that still has something to say is told so at once, and Spark's daemon prints the
traceback of every one, though nothing went wrong.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, wraps
from types import ModuleType
from typing import Final

# What Spark starts, by the module that runs: what is forked from a daemon, and the one process
# that a stream has beside the driver.
_DAEMON: Final = "pyspark.daemon"
_MODULES: Final = frozenset(
    {
        _DAEMON,
        "orbitmq.spark.sessions.worker_daemon",
        "pyspark.sql.streaming.python_streaming_source_runner",
    }
)

# What the C library has of its own accord goes back after 128 KiB, and is found anew for each piece.
_KEPT_BYTES: Final = 64 * 1024 * 1024
_PIECE_BYTES_MAX: Final = 32 * 1024 * 1024
# Numbers of glibc's `mallopt`.
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3


@cache
def spare_collections() -> None:
    """Leave what is there now out of all collections; only in a process that Spark has made.

    Called when the modules that a task needs are there, and once for good.
    """
    if _is_sparks():
        # Perf: 50 ms without, 0.01 ms with it (timeit of gc.collect).
        gc.freeze()


@cache
def keep_freed_memory() -> None:
    """Let what a piece of work frees serve the next one; only in a process that Spark has made."""
    if not _is_sparks():
        return
    # Only tasks need it.
    import ctypes

    try:
        set_option = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        # Other C libraries have no such options.
        return
    # Perf: 0.13 us a row of system time without, 0.09 with it (reading 128-byte bodies in bulk).
    set_option(_TRIM_THRESHOLD, _KEPT_BYTES)
    set_option(_MMAP_THRESHOLD, _PIECE_BYTES_MAX)


@contextmanager
def imports_of_a_worker() -> Iterator[None]:
    """Import without collections, now and later: what is imported here never becomes garbage."""
    if not _is_sparks() or not gc.isenabled():
        yield
        return
    modules = len(sys.modules)
    # Perf: 40 of 240 ms of a stream's start (process_time around the imports).
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
    if len(sys.modules) > modules:
        gc.freeze()


def end_quietly(daemon: ModuleType) -> None:
    """Have a worker of Spark's daemon end without a word when nobody listens to it any more."""
    worker = daemon.worker

    @wraps(worker)
    def run(sock: object, authenticated: bool) -> int:  # noqa: FBT001  # Spark's signature
        try:
            code: int = worker(sock, authenticated)
        except BrokenPipeError:
            # Spark's daemon lets the process go once the socket is closed, which it is.
            return 1
        return code

    daemon.worker = run  # type: ignore[attr-defined]  # the daemon looks it up for each task


def end_a_worker_quietly() -> None:
    """Do so in this process if it was forked from Spark's own daemon."""
    if _main_name() == _DAEMON:
        end_quietly(sys.modules["__main__"])


def _is_sparks() -> bool:
    return _main_name() in _MODULES


def _main_name() -> str:
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return "" if main is None else str(main.name)
