"""The command `orbitmq`, as a user calls it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.spark.conftest import SMALL_JVM


def orbitmq(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run it; returns once it has ended."""
    program = Path(sys.executable).with_name("orbitmq")
    return subprocess.run(
        [program, *words],
        env={**os.environ, "JAVA_TOOL_OPTIONS": SMALL_JVM},
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
