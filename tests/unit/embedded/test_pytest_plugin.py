"""The plug-in, used by the tests of a sample project."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SAMPLE = Path(__file__).parents[3] / "examples" / "sample_project"


def test_a_sample_project_tests_its_service_with_it() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=SAMPLE,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "3 passed" in ran.stdout
