"""`examples/tour.py` shows on one screen what a broker does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.integration.conftest import PATIENT_ENVIRONMENT

TOUR = Path(__file__).parents[3] / "examples" / "tour.py"
SCREEN_LINES = 24
TIMEOUT_S = 150


def test_the_tour_sends_delays_filters_finds_and_consumes_messages(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(TOUR)],
        env={
            "HOME": str(tmp_path),
            "TMPDIR": str(tmp_path),
            "COLUMNS": "80",
            **PATIENT_ENVIRONMENT,
        },
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert len(lines) <= SCREEN_LINES
    for expected in (
        "a pull of queue 0, everything: a plain one (offset 0), a tagged one (offset 1)",
        "a pull of queue 0, tag paid: a tagged one (offset 1)",
        "by key order-7: a tagged one (offset 1)",
        "a consumer of the group billing: a delayed one is done, a plain one is done, a tagged one "
        "fails, a tagged one is done the second time",
        "the queues of orders: queue 0 from 0 to 2, queue 1 from 0 to 1",
    ):
        # A line that is too long for the screen wraps.
        assert expected in " ".join(lines)
    assert list(tmp_path.iterdir()) == []
