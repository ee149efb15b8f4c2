"""The fallback as a system: a part of this suite once more, without compiled code.

All of tests/integration runs so in `make soak`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FILES = (
    "tests/integration/broker/test_sending.py",
    "tests/integration/broker/test_pulling.py",
    "tests/integration/broker/test_retries.py",
    "tests/integration/client/test_producer.py",
)
# Far more than it needs: 15 s on an idle machine.
SECONDS_MAX = 600
# By these pytest tells a child its worker, and the options of its parent.
PARENTS = ("PYTEST_XDIST_WORKER", "PYTEST_CURRENT_TEST", "PYTEST_ADDOPTS", "COV_CORE_SOURCE")


@pytest.mark.slow
@pytest.mark.timeout(SECONDS_MAX + 60)
@pytest.mark.skipif(os.environ.get("ORBITMQ_PURE") == "1", reason="this run is without it already")
def test_brokers_and_producers_work_without_compiled_code() -> None:
    environment = {name: text for name, text in os.environ.items() if name not in PARENTS}

    child = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", *FILES],
        cwd=ROOT,
        env={**environment, "ORBITMQ_PURE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS_MAX,
    )

    assert child.returncode == 0, child.stdout + child.stderr
    assert " passed" in child.stdout.splitlines()[-1]
