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
    (tmp_path / "temporary").mkdir()

    done = subprocess.run(
        [sys.executable, str(DEMO), "--seconds", "3"],
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
    figures = re.search(
        r"(\d+) orders were sent, and the table has (\d+) rows. "
        r"A consumer got (\d+) windows from topic turnover, as the table has them",
        " ".join(done.stdout.split()),
    )
    assert figures is not None, done.stdout
    assert figures[1] == figures[2]
    assert int(figures[3]) > 0
    # It ran on the Java of PyPI, and cleaned up.
    assert list((tmp_path / "cache" / "orbitmq").glob("java-*/bin/java"))
    assert list((tmp_path / "temporary").iterdir()) == []
