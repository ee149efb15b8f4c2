"""`make demo` and the examples with Spark show what they promise."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOLDER = Path(__file__).parents[2] / "examples"
SCREEN_LINES = 24
TIMEOUT_S = 800

RunExample = Callable[..., list[str]]


@pytest.fixture
def without_java(tmp_path: Path) -> dict[str, str]:
    """The environment of a machine that has every program but Java."""
    folder = tmp_path / "programs"
    folder.mkdir()
    for place in os.environ["PATH"].split(os.pathsep):
        for program in Path(place).iterdir() if Path(place).is_dir() else ():
            if program.name != "java" and not os.path.lexists(folder / program.name):
                (folder / program.name).symlink_to(program)
    environment = {name: text for name, text in os.environ.items() if name != "JAVA_HOME"}
    return {**environment, "PATH": str(folder), "XDG_CACHE_HOME": str(tmp_path / "cache")}


def test_the_demo_runs_without_a_java_and_ends_where_it_should(
    tmp_path: Path, without_java: dict[str, str]
) -> None:
    (tmp_path / "temporary").mkdir()

    done = subprocess.run(
        [sys.executable, str(FOLDER / "demo.py"), "--seconds", "3"],
        env={**without_java, "TMPDIR": str(tmp_path / "temporary"), "COLUMNS": "80"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) <= SCREEN_LINES
    told = re.search(
        r"(\d+) orders were sent, and the table has (\d+) rows. "
        r"A consumer got (\d+) windows from topic turnover, as the table has them",
        " ".join(done.stdout.split()),
    )
    assert told is not None, done.stdout
    assert told[1] == told[2]
    assert int(told[3]) > 0
    # It ran on the Java of PyPI, and cleaned up.
    assert list((tmp_path / "cache" / "orbitmq").glob("java-*/bin/java"))
    assert list((tmp_path / "temporary").iterdir()) == []


@pytest.fixture
def run_example(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> RunExample:
    """Runs an example on the Spark that is there, and returns the lines that it printed."""
    monkeypatch.syspath_prepend(str(FOLDER))

    def run(name: str, *arguments: str) -> list[str]:
        monkeypatch.setattr(sys, "argv", [name, *arguments])
        capsys.readouterr()
        runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
        # What listeners print comes from a thread of Spark, a little later.
        spark._jsc.sc().listenerBus().waitUntilEmpty(TIMEOUT_S * 1000)
        return capsys.readouterr().out.splitlines()

    return run


def test_the_batch_example_reads_what_it_wrote(run_example: RunExample) -> None:
    assert run_example("spark_batch") == ["tea for 3, paid", "cake for 5, paid"]


@pytest.mark.usefixtures("patient_streams")
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

    assert f"10 rows in {tmp_path}/table" in first
    assert f"11 rows in {tmp_path}/table" in second
