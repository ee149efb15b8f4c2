"""What goes wrong in a read or write of a replay, as our errors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from orbitmq.errors import DataLossError, ReplayError, ReplaySourceError
from orbitmq.pipelines.running.spark_errors import quiet, reason_of
from orbitmq.protocol.failures import NEEDS_ORBIT

_LOSS: Final = re.compile(rf"\b{DataLossError.__name__}: ([^(\n]+)")


@contextmanager
def reported(what: str, *, hint: str = "") -> Iterator[None]:
    """Raise what Spark reports as a ReplayError."""
    try:
        with quiet():
            yield
    except (PySparkException, Py4JError) as error:
        lost = _LOSS.search(str(error))
        if lost is not None:
            raise ReplaySourceError(f"messages of the plan are gone: {lost[1].strip()}") from error
        reason = reason_of(error)
        if NEEDS_ORBIT in reason:
            hint = "--guarantee at-least-once sends to other brokers, under another --id"
        raise ReplayError(f"{what}: {reason}", hint=hint) from error
