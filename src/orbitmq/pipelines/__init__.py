"""Pipelines: topics to tables to topics, described in a file and run by Spark."""

from typing import TYPE_CHECKING

from orbitmq.lazy_names import LazyNames

if TYPE_CHECKING:
    from orbitmq.pipelines.file.definition import Definition, define

__all__ = ["Definition", "define"]

_names = LazyNames(
    __name__,
    {
        "Definition": "orbitmq.pipelines.file.definition",
        "define": "orbitmq.pipelines.file.definition",
    },
)

if not TYPE_CHECKING:
    # Hidden from type checkers, which would otherwise accept any name.
    __getattr__, __dir__ = _names.find, _names.all
