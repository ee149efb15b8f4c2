"""What Spark reports of a replay, as our errors."""

from __future__ import annotations

import pytest
from pyspark.errors import PythonException

from orbitmq.errors import ReplayError, ReplaySourceError
from orbitmq.pipelines.replaying.spark_failures import reported


def failing(text: str, *, hint: str = "") -> None:
    with reported("chunk 1 was not sent", hint=hint):
        raise PythonException(text)


def test_lost_messages_are_named_without_the_advice_for_queries_of_spark() -> None:
    text = (
        "orbitmq.errors.DataLossError: message 3 of queue 0 is gone (with failOnDataLoss=false …)"
    )

    with pytest.raises(
        ReplaySourceError, match="plan are gone: message 3 of queue 0 is gone"
    ) as told:
        failing(text)

    assert "failOnDataLoss" not in str(told.value)


def test_brokers_that_cannot_write_once_are_met_with_the_flag_that_helps() -> None:
    text = (
        "orbitmq.errors.RowError: could not write row 0: 127.0.0.1:29767 answered STAGE_ROWS (21001) "
        "with code 3:  request type 21001 not supported (this needs an OrbitMQ broker)"
    )

    with pytest.raises(ReplayError, match=r"could not write row 0.*--guarantee at-least-once"):
        failing(text, hint="once that is mended")


def test_anything_else_is_told_with_the_way_to_resume() -> None:
    with pytest.raises(
        ReplayError, match=r"not sent: the disk is full \(the same command resumes\)"
    ):
        failing("orbitmq.errors.DiskFullError: the disk is full", hint="the same command resumes")
