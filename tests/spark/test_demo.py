"""`make demo` shows what it promises, on a Spark of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

DEMO = Path(__file__).parents[2] / "examples" / "demo.py"
SCREEN_LINES = 24
TIMEOUT_S = 800


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
    temporary, results = tmp_path / "temporary", tmp_path / "results"
    temporary.mkdir()

    done = subprocess.run(
        [sys.executable, str(DEMO), "--seconds", "3", "--folder", str(results)],
        env={**without_java, "TMPDIR": str(temporary), "COLUMNS": "80"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )

    # It compares rows, alerts and quarantine with what was sent, one by one.
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(done.stdout.splitlines()) <= SCREEN_LINES
    said = " ".join(done.stdout.split())
    figures = re.search(
        r"(\d+) of them paid in time; (\d+) orders twice, (\d+) too late, (\d+) wrong "
        r".*table: (\d+) paid orders .*topic alerts: (\d+) rushes",
        said,
    )
    assert figures is not None, done.stdout
    paid, twice, late, wrong, rows, alerts = map(int, figures.groups())
    assert paid == rows > 0
    assert min(twice, late, wrong, alerts) > 0
    assert "rejected messages are as they should be, each once" in said
    report = (results / "report.html").read_text()
    assert '<span class="outcome stopped">' in report
    assert report.count("<polyline") == 16
    # It ran on the Java of PyPI, and cleaned up: no file is left, nor a process that had one.
    assert list((tmp_path / "cache" / "orbitmq").glob("java-*/bin/java"))
    assert list(temporary.iterdir()) == []
    assert [one for one in processes() if str(tmp_path) in one] == []


def test_the_demo_leaves_a_folder_alone_that_has_something_else(tmp_path: Path) -> None:
    (tmp_path / "letters.txt").write_text("dear")

    refused = subprocess.run(
        [sys.executable, str(DEMO), "--folder", str(tmp_path)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )

    assert refused.returncode == 1
    assert "has something else in it" in refused.stderr
    assert (tmp_path / "letters.txt").read_text() == "dear"


def processes() -> list[str]:
    """The command lines of all processes."""
    return subprocess.run(
        ["ps", "-eo", "args"], capture_output=True, text=True, check=True
    ).stdout.splitlines()
