"""Topics as Spark tables: source, sink and store scan for PySpark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orbitmq.spark.lag_listener import LagListener
    from orbitmq.spark.local_session import session

__all__ = ["LagListener", "session"]


# Workers of Spark import this package for every source: what only drivers need comes when asked.
def __getattr__(name: str) -> Any:
    if name == "session":
        from orbitmq.spark.local_session import session

        return session
    if name == "LagListener":
        from orbitmq.spark.lag_listener import LagListener

        return LagListener
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
