"""A pipeline that is killed: `python -m tests.spark.pipelines.killed_pipeline FILE [SINK MOMENT]`.

It kills itself, its JVM and their workers at a moment of the first batch of a sink: "begun", "files
written" or "committed". Without one, it runs until somebody else kills it.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from orbitmq.pipelines.file.pipeline_file import read_pipeline
from orbitmq.pipelines.running import queries
from orbitmq.pipelines.running.runner import Runner
from orbitmq.pipelines.tables import delta, iceberg
from orbitmq.spark import session
from tests.spark.conftest import SMALL_JVM

TABLES: dict[str, Any] = {"delta": delta, "iceberg": iceberg}


def _kill() -> None:
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _then_killed(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*given: Any, **named: Any) -> Any:
        function(*given, **named)
        _kill()

    return call


def _kill_at(sink: str, moment: str) -> None:
    """Arrange for this process to be killed."""
    if moment == "files written":
        module = TABLES[sink]
        module.write_parts = _then_killed(module.write_parts)
        return
    planning: Any = queries
    made = planning.batch_writer

    def batch_writer(*given: Any, **named: Any) -> Callable[..., Any]:
        write: Callable[..., Any] = made(*given, **named)
        if not named["sink"].endswith(f"/{sink}"):
            return write
        return _then_killed(write) if moment == "committed" else lambda *_: _kill()

    planning.batch_writer = batch_writer


def main() -> None:
    """Run the pipeline until it is killed."""
    logging.basicConfig()
    file, *when = sys.argv[1:]
    if when:
        _kill_at(*when)
    spark = session("killed", cores=2, settings={"spark.driver.extraJavaOptions": SMALL_JVM})
    Runner(pipeline=read_pipeline(Path(file)), spark=spark, is_once=False).run()


if __name__ == "__main__":
    main()
