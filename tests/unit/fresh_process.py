"""Asks a Python of its own which forms of the hot path it would use."""

from __future__ import annotations

import os
import subprocess
import sys

_TIMEOUT_S = 150


def printed_by(program: str, **environment: str) -> str:
    """Run a program in a process of its own, with the plain forms only if that is asked for."""
    inherited = {name: value for name, value in os.environ.items() if name != "ORBITMQ_PURE"}
    return subprocess.run(
        [sys.executable, "-c", program],
        env=inherited | environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=_TIMEOUT_S,
    ).stdout.strip()
