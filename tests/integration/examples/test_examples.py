"""Every example runs as it is, on a cluster of its own, and shows what it promises."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.conftest import PATIENT_ENVIRONMENT

FOLDER = Path(__file__).parents[3] / "examples"
TIMEOUT_S = 150
# What each shows, beside what changes from run to run.
SHOWN = {
    "consume": ["order 0 key-0", "order 4 key-4"],
    "consume_asyncio": ["order 0", "order 4"],
    "consume_broadcast": ["one: tea costs 4", "two: tea costs 4"],
    "consume_filtered": ["order from SE for 700"],
    "consume_ordered": ["7 created", "7 paid", "7 shipped", "8 created", "8 paid", "8 shipped"],
    "consume_retries": ["not now", "order 1, tried again 1 time"],
    "poll": ["order 0 from queue", "order 9 from queue"],
    "poll_assigned": [
        "first time: ['order 0', 'order 1', 'order 2']",
        "once more: ['order 1', 'order 2']",
        "resumes at 3",
    ],
    "poll_asyncio": ["order 1", "order 2", "order 3"],
    "pull_by_hand": ["queue 0 is read up to", "20 messages"],
    "request_reply": ["a chair costs 12.50"],
    "send": ["OK "],
    "send_accumulated": ["500 messages stored"],
    "send_asyncio": ["100 messages in 4 queues"],
    "send_at_a_time": ["taken back: True", "'pay your order' after "],
    "send_batch": ["OK: offsets 0 to 9"],
    "send_callbacks": ["stored "],
    "send_delayed": ["'pay your order' after "],
    "send_in_transaction": [
        "order 7: the card was refused, rolled back",
        "delivered: order 8 is paid",
    ],
    "send_oneway": ["on their way"],
    "send_ordered": ["7 shipped queue 3 offset 2", "8 shipped queue 0 offset 2", "first queue:"],
}
# Run by tests/integration/cli, by tests/spark, and no example but what they share.
OTHERS = {"demo", "spark_batch", "spark_stream", "tour", "local_cluster"}


def run(name: str, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        # What is left behind is told of on the error output.
        [sys.executable, "-W", "default", str(FOLDER / f"{name}.py"), *arguments],
        env={"HOME": str(folder), "TMPDIR": str(folder), **PATIENT_ENVIRONMENT},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def test_every_example_is_run() -> None:
    assert {path.stem for path in FOLDER.glob("*.py")} == SHOWN.keys() | OTHERS


@pytest.mark.parametrize("name", sorted(SHOWN))
def test_an_example_shows_what_it_promises(name: str, tmp_path: Path) -> None:
    done = run(name, folder=tmp_path)

    assert (done.returncode, done.stderr) == (0, "")
    missing = [expected for expected in SHOWN[name] if expected not in done.stdout]
    assert missing == [], done.stdout
    assert list(tmp_path.iterdir()) == []


def test_an_example_tells_how_it_is_used(tmp_path: Path) -> None:
    done = run("send", "--help", folder=tmp_path)

    assert "--namesrv" in done.stdout
    assert "shows where each was stored" in done.stdout


def test_steps_of_an_order_come_in_their_order(tmp_path: Path) -> None:
    lines = run("consume_ordered", folder=tmp_path).stdout.splitlines()

    for order in ("7", "8"):
        steps = [line.split()[1] for line in lines if line.startswith(order)]
        assert steps == ["created", "paid", "shipped"]
