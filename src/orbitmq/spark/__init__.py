"""Topics as Spark tables: source, sink and store scan for PySpark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orbitmq.spark.local_session import session

__all__ = ["session"]


# Workers of Spark import this package for every source: what only drivers need comes when asked.
def __getattr__(name: str) -> Any:
    if name == "session":
        from orbitmq.spark.local_session import session

        return session
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
