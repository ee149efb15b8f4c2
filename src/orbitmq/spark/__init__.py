"""Topics as Spark tables: source, sink and store scan for PySpark."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

from orbitmq.errors import PackageMissingError
from orbitmq.lazy_names import LazyNames
from orbitmq.spark.sessions.worker_process import end_a_worker_quietly

if TYPE_CHECKING:
    from orbitmq.spark.reading.lag_listener import LagListener, QueryLag
    from orbitmq.spark.sessions.local_session import session

# Looked for, not imported: see below.
if importlib.util.find_spec("pyspark") is None:
    raise PackageMissingError("pyspark", needed_by="orbitmq.spark", extra="spark")

__all__ = ["LagListener", "QueryLag", "session"]

# Workers of Spark import this package for every source, before anything else of ours.
end_a_worker_quietly()

# What only drivers need comes when asked.
_names = LazyNames(
    __name__,
    {
        "LagListener": "orbitmq.spark.reading.lag_listener",
        "QueryLag": "orbitmq.spark.reading.lag_listener",
        "session": "orbitmq.spark.sessions.local_session",
    },
)

if not TYPE_CHECKING:
    # Unknown to type checkers, which would take any name for one that is there.
    __getattr__, __dir__ = _names.find, _names.all
