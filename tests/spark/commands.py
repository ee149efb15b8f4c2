"""The command `orbitmq`, as a user calls it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def orbitmq(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run it; returns once it has ended."""
    program = Path(sys.executable).with_name("orbitmq")
    return subprocess.run(
        [program, *words], capture_output=True, text=True, timeout=170, check=False
    )
