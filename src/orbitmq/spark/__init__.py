"""Topics as Spark tables: source, sink and store scan for PySpark."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

from orbitmq.errors import PackageMissingError
from orbitmq.lazy_names import LazyNames
from orbitmq.spark.sessions.worker_process import log_with_times, silence_worker_exit

if TYPE_CHECKING:
    from orbitmq.spark.reading.lag_listener import LagListener, QueryLag
    from orbitmq.spark.sessions.active_session import activate
    from orbitmq.spark.sessions.local_session import session

# Looked up, not imported: the lazy names below import it when needed.
if importlib.util.find_spec("pyspark") is None:
    raise PackageMissingError("pyspark", needed_by="orbitmq.spark", extra="spark")

__all__ = ["LagListener", "QueryLag", "activate", "session"]

# Spark's workers import this package for every source, before any other of our modules.
silence_worker_exit()
log_with_times()

# Only drivers need these, so they are imported on first use.
_names = LazyNames(
    __name__,
    {
        "LagListener": "orbitmq.spark.reading.lag_listener",
        "QueryLag": "orbitmq.spark.reading.lag_listener",
        "activate": "orbitmq.spark.sessions.active_session",
        "session": "orbitmq.spark.sessions.local_session",
    },
)

if not TYPE_CHECKING:
    # Hidden from type checkers, which would otherwise accept any name.
    __getattr__, __dir__ = _names.find, _names.all
