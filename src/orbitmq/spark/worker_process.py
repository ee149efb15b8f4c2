"""The Python processes in which Spark runs a source.

Spark keeps them for the next task, and collects garbage in them after each one. What that looks at
is nearly all modules, which never become garbage: with NumPy, Arrow and Spark's own it takes 30 to
50 ms of a core for each task, and for each time that a query is planned.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Final

# What Spark starts, by the module that runs: what is forked from a daemon, and the one process
# that a stream has beside the driver.
_MODULES: Final = frozenset(
    {"pyspark.daemon", "pyspark.sql.streaming.python_streaming_source_runner"}
)


@cache
def spare_collections() -> None:
    """Leave what is there now out of all collections; only in a process that Spark has made.

    Called when the modules that a task needs are there, and once for good.
    """
    if _is_sparks():
        # Perf: 50 ms without, 0.01 ms with it (timeit of gc.collect).
        gc.freeze()


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


def _is_sparks() -> bool:
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return main is not None and main.name in _MODULES
