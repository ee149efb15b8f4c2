"""Runs small programs in processes of their own, for tests of forks and exits."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading

SECONDS_MAX = 150


def run_script(source: str, *arguments: str) -> str:
    """Run a program with warnings as errors; return its output, or fail with its errors."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(source), *arguments],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == "", done.stderr
    return done.stdout


def refuse_to_start(_: threading.Thread) -> None:
    """Fail like `Thread.start` while the interpreter shuts down, in Python 3.12 or newer."""
    raise RuntimeError("can't create new thread at interpreter shutdown")
