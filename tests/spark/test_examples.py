"""The examples with Spark show what they promise."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.spark.topics import Topics

FOLDER = Path(__file__).parents[2] / "examples"

RunExample = Callable[..., list[str]]


@pytest.fixture
def run_example(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> RunExample:
    """Runs an example on the Spark that is there, and returns the lines that it printed."""
    monkeypatch.syspath_prepend(str(FOLDER))

    def run(name: str, *arguments: str) -> list[str]:
        monkeypatch.setattr(sys, "argv", [name, *arguments])
        capsys.readouterr()
        runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
        return capsys.readouterr().out.splitlines()

    return run


@pytest.mark.usefixtures("spark")
def test_the_batch_example_reads_what_it_wrote(run_example: RunExample) -> None:
    assert run_example("spark_batch") == ["tea for 3, paid", "cake for 5, paid"]


@pytest.mark.usefixtures("spark")
def test_the_stream_example_goes_on_where_it_ended(
    topics: Topics, run_example: RunExample, tmp_path: Path
) -> None:
    topic = topics.filled(10)
    arguments = ["--namesrv", topics.cluster.namesrv, "--topic", topic, "--once"]
    # Not relative: Spark looks from where it was started.
    arguments += ["--folder", str(tmp_path)]

    first = run_example("spark_stream", *arguments)
    topics.send(topic, ["one more"])
    second = run_example("spark_stream", *arguments)

    assert first[-1] == f"10 rows in {tmp_path}/table"
    assert second[-1] == f"11 rows in {tmp_path}/table"
