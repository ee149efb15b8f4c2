"""Topics as Spark tables: source, sink and store scan for PySpark."""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any, Final

from orbitmq.errors import PackageMissingError

if TYPE_CHECKING:
    from orbitmq.spark.lag_listener import LagListener, QueryLag
    from orbitmq.spark.local_session import session

# Looked for, not imported: see below.
if importlib.util.find_spec("pyspark") is None:
    raise PackageMissingError("pyspark", needed_by="orbitmq.spark", extra="spark")

__all__ = ["LagListener", "QueryLag", "session"]

# Workers of Spark import this package for every source: what only drivers need comes when asked.
_MODULES: Final = {
    "LagListener": "orbitmq.spark.lag_listener",
    "QueryLag": "orbitmq.spark.lag_listener",
    "session": "orbitmq.spark.local_session",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)
