"""Kills appending children; a test does it a few times, a soak run thousands of times."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from orbitmq.store.config import FlushMode
from orbitmq.store.message_store import MessageStore
from tests.crash.agreement import check_agreement
from tests.crash.scenario import TOPIC, number_of, small_config

REPOSITORY = Path(__file__).parents[2]


def run_kills(folder: Path, seed: int, mode: FlushMode, *, rounds: int) -> int:
    """Let a child append to one store and kill it, again and again; returns the messages kept.

    After each kill a copy is recovered and checked; the next child recovers the store itself.
    """
    rng = random.Random(f"{seed} {mode}")
    root = folder / "store"
    root.mkdir(parents=True)
    acked: dict[int, int] = {}
    kept = 0
    for number in range(rounds):
        _kill_one(root, rng, mode, acked)
        copy = folder / f"copy{number}"
        shutil.copytree(root, copy)
        kept = _check(copy, mode, acked)
        shutil.rmtree(copy)
        if sum(path.stat().st_size for path in (root / "commitlog").glob("*")) > 4 << 20:
            shutil.rmtree(root)
            root.mkdir()
            acked.clear()
    return kept


def _kill_one(root: Path, rng: random.Random, mode: FlushMode, acked: dict[int, int]) -> None:
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.crash.appender", str(root), mode.value],
        stdout=subprocess.PIPE,
        cwd=REPOSITORY,
        env=os.environ | {"PYTHONPATH": "src:."},
    )
    assert child.stdout is not None
    # Some die while they open the store, some with hundreds of messages behind them.
    lines_wanted = rng.choice((1, 2, rng.randrange(3, 30), rng.randrange(3, 300)))
    lines: list[bytes] = []
    with child, child.stdout as output:
        for line in output:
            lines.append(line)
            if len(lines) >= lines_wanted:
                break
        for _ in range(rng.randrange(200_000)):
            pass  # not always right behind an acknowledgement
        child.send_signal(signal.SIGKILL)
        lines += output
    assert child.returncode == -signal.SIGKILL, f"the child ended by itself: {lines[-3:]}"
    for line in lines:
        words = line.split()
        if len(words) == 2 and line.endswith(b"\n"):
            acked[int(words[0])] = int(words[1])


def _check(root: Path, mode: FlushMode, acked: dict[int, int]) -> int:
    config = small_config(root, mode)
    with MessageStore(config) as store:
        queues = check_agreement(store, config)
    for (topic, queue_id), messages in queues.items():
        assert topic == TOPIC
        numbers = [number_of(message) for message in messages]
        assert numbers == list(range(len(numbers))), f"queue {queue_id} is out of order"
    for queue_id, last in acked.items():
        # A killed process keeps its page cache: this holds in both modes.
        kept = len(queues.get((TOPIC, queue_id), ()))
        assert kept > last, f"queue {queue_id} acknowledged {last} and kept {kept}"
    return sum(len(messages) for messages in queues.values())
