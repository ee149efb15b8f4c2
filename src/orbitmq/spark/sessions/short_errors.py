"""Errors of a source, as Spark shows them: what is wrong, without a traceback.

Spark hands the traceback of an error in a Python worker to the driver, dozens of lines of Spark's
own calls and ours, and shows it for each attempt of a task. Our errors say what happened and what
to do. Any other error is a fault of this program, and keeps its traceback.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, Final, TypeVar

from orbitmq.errors import OrbitError
from orbitmq.spark.sessions.worker_process import is_spark_process

C = TypeVar("C", bound=type)

# Spark's own switch; a worker looks at it when an error ends it.
_HIDES: Final = "SPARK_HIDE_TRACEBACK"


def short_errors(source: C) -> C:
    """Hide the tracebacks of our errors in all methods of a class that Spark calls."""
    for name, method in vars(source).copy().items():
        if inspect.isfunction(method) and not name.startswith("_"):
            setattr(source, name, _shortened(method))
    return source


def _shortened(method: Callable[..., Any]) -> Callable[..., Any]:
    if inspect.isgeneratorfunction(method):

        @wraps(method)
        def generate(*args: Any, **keywords: Any) -> Iterator[Any]:
            with _hidden_tracebacks():
                yield from method(*args, **keywords)

        return generate

    @wraps(method)
    def call(*args: Any, **keywords: Any) -> Any:
        with _hidden_tracebacks():
            return method(*args, **keywords)

    return call


@contextmanager
def _hidden_tracebacks() -> Iterator[None]:
    try:
        yield
    except OrbitError:
        if is_spark_process():
            os.environ[_HIDES] = "1"
        raise
