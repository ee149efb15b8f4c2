"""Tunes the Python processes in which Spark runs a source.

Collections: Spark keeps these processes for the next task, and collects garbage after each one.
Nearly all objects then scanned belong to modules, which never become garbage: with NumPy, Arrow and
Spark's own, a scan takes 30 to 50 ms of a core for each task, and for each planning of a query.

Memory: tasks move bytes in pieces of a megabyte. Memory that is returned to the system after each
piece comes back page by page.

Log: Spark shows what a worker writes to standard error. Without a handler, Python would write bare
messages there.

Exit: Spark ends a worker by closing its socket, after a minute without work or when a query has
enough rows. Over Unix sockets a worker that still writes gets an error at once, and Spark's daemon
prints its traceback, though nothing went wrong.
"""

from __future__ import annotations

import gc
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, wraps
from types import ModuleType
from typing import Final

# Main modules of the processes that Spark starts: those forked from a daemon, and the one process
# that a stream has beside the driver.
_DAEMON: Final = "pyspark.daemon"
_MODULES: Final = frozenset(
    {
        _DAEMON,
        "orbitmq.spark.sessions.worker_daemon",
        "pyspark.sql.streaming.python_streaming_source_runner",
    }
)

# By default the C library returns memory beyond 128 KiB, and would request it again for each piece.
_KEPT_BYTES: Final = 64 * 1024 * 1024
_PIECE_BYTES_MAX: Final = 32 * 1024 * 1024
# Numbers of glibc's `mallopt`.
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3


@cache
def freeze_loaded_modules() -> None:
    """Exempt all present objects from garbage collection; only in a process of Spark.

    Called once, when the modules that a task needs are loaded.
    """
    if is_spark_process():
        # Perf: 50 ms without, 0.01 ms with it (timeit of gc.collect).
        gc.freeze()


@cache
def keep_freed_memory() -> None:
    """Keep freed memory for the next piece of work; only in a process of Spark."""
    if not is_spark_process():
        return
    # Imported here, since only tasks need it.
    import ctypes

    try:
        set_option = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        # Other C libraries lack these options.
        return
    # Perf: 0.13 us a row of system time without, 0.09 with it (reading 128-byte bodies in bulk).
    set_option(_TRIM_THRESHOLD, _KEPT_BYTES)
    set_option(_MMAP_THRESHOLD, _PIECE_BYTES_MAX)


@contextmanager
def imports_without_gc() -> Iterator[None]:
    """Import with garbage collection off, and exempt what was imported from later collections."""
    if not is_spark_process() or not gc.isenabled():
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


def log_with_times() -> None:
    """Write warnings with their time and level to standard error; only in a process of Spark."""
    log = logging.getLogger("orbitmq")
    if not is_spark_process() or log.handlers or logging.getLogger().handlers:
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    log.addHandler(handler)
    # Otherwise a handler that the user's code adds later would repeat each line.
    log.propagate = False


def silence_exits(daemon: ModuleType) -> None:
    """Make a worker of Spark's daemon exit silently once Spark has closed its socket."""
    worker = daemon.worker

    @wraps(worker)
    def run(sock: object, authenticated: bool) -> int:  # noqa: FBT001  # Spark's signature
        try:
            code: int = worker(sock, authenticated)
        except BrokenPipeError:
            # The socket is closed, so Spark's daemon ends the process.
            return 1
        return code

    daemon.worker = run  # type: ignore[attr-defined]  # the daemon looks it up for each task


def silence_worker_exit() -> None:
    """Apply `silence_exits` to this process if it was forked from Spark's own daemon."""
    if _main_name() == _DAEMON:
        silence_exits(sys.modules["__main__"])


def is_spark_process() -> bool:
    """Whether Spark started this process, for a source."""
    return _main_name() in _MODULES


def _main_name() -> str:
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return "" if main is None else str(main.name)
