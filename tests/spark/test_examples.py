"""The examples with Spark show what they promise."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOLDER = Path(__file__).parents[2] / "examples"
TIMEOUT_S = 800

RunExample = Callable[..., list[str]]


@pytest.fixture
def run_example(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> RunExample:
    """Runs an example on the running Spark, and returns the printed lines."""
    monkeypatch.syspath_prepend(str(FOLDER))

    def run(name: str, *arguments: str) -> list[str]:
        monkeypatch.setattr(sys, "argv", [name, *arguments])
        capsys.readouterr()
        runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
        # Listeners print from a thread of Spark, a little later.
        spark._jsc.sc().listenerBus().waitUntilEmpty(TIMEOUT_S * 1000)
        return capsys.readouterr().out.splitlines()

    return run


def test_the_batch_example_reads_what_it_wrote(run_example: RunExample) -> None:
    assert run_example("spark_batch") == ["tea for 3, paid", "cake for 5, paid"]


@pytest.mark.usefixtures("patient_streams")
def test_the_stream_example_resumes_where_it_ended(
    topics: Topics, run_example: RunExample, tmp_path: Path
) -> None:
    topic = topics.filled(10)
    arguments = ["--namesrv", topics.cluster.namesrv, "--topic", topic, "--once"]
    # Absolute, since Spark resolves paths from where it was started.
    arguments += ["--folder", str(tmp_path)]

    first = run_example("spark_stream", *arguments)
    topics.send(topic, ["one more"])
    second = run_example("spark_stream", *arguments)

    assert f"10 rows in {tmp_path}/table" in first
    assert f"11 rows in {tmp_path}/table" in second
