"""Kills appending children; a test does it a few times, a soak run thousands of times."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

from orbitmq.store.config import FlushMode
from orbitmq.store.message_store import MessageStore
from tests.crash import appender
from tests.crash.agreement import check_agreement
from tests.crash.scenario import TOPIC, number_of, small_config

REPOSITORY = Path(__file__).parents[2]
# A store larger than this is thrown away, and the next child begins with an empty one.
LOG_BYTES_MAX = 1 << 20

# Starts a child that appends to a store and writes to a descriptor; returns its process id.
StartChild = Callable[[Path, FlushMode, int], int]


def start_interpreter(root: Path, mode: FlushMode, output: int) -> int:
    """Start the child in an interpreter of its own."""
    return os.posix_spawn(
        sys.executable,
        [sys.executable, "-m", "tests.crash.appender", str(root), mode.value],
        os.environ | {"PYTHONPATH": f"{REPOSITORY / 'src'}:{REPOSITORY}"},
        file_actions=[(os.POSIX_SPAWN_DUP2, output, 1)],
    )


def fork(root: Path, mode: FlushMode, output: int) -> int:
    """Start the child as a copy of this process, which has no other threads; costs far less."""
    pid = os.fork()
    if pid:
        return pid
    try:
        os.dup2(output, 1)
        appender.run(root, mode)
    finally:
        # A child that gets here failed, or was not killed in time, which is a failure too.
        traceback.print_exc()
        os._exit(1)


def run_kills(
    folder: Path,
    seed: int,
    mode: FlushMode,
    *,
    rounds: int,
    start_child: StartChild = start_interpreter,
) -> int:
    """Let a child append to one store and kill it, again and again.

    Returns the most messages that a check found: a store that became large begins anew, and the
    next child may die before its first message.

    After each kill a copy is recovered and checked; the next child recovers the store itself.
    """
    rng = random.Random(f"{seed} {mode}")
    root = folder / "store"
    root.mkdir(parents=True)
    acked: dict[int, int] = {}
    kept = 0
    for number in range(rounds):
        _kill_one(root, rng, mode, acked, start_child)
        copy = folder / f"copy{number}"
        shutil.copytree(root, copy)
        kept = max(kept, _check(copy, mode, acked))
        shutil.rmtree(copy)
        if sum(path.stat().st_size for path in (root / "commitlog").glob("*")) > LOG_BYTES_MAX:
            shutil.rmtree(root)
            root.mkdir()
            acked.clear()
    return kept


def _kill_one(
    root: Path,
    rng: random.Random,
    mode: FlushMode,
    acked: dict[int, int],
    start_child: StartChild,
) -> None:
    reader, writer = os.pipe()
    pid = start_child(root, mode, writer)
    os.close(writer)
    # Some die while they open the store, some after hundreds of messages.
    lines_wanted = rng.choice((1, 2, rng.randrange(3, 30), rng.randrange(3, 300)))
    lines: list[bytes] = []
    with os.fdopen(reader, "rb") as output:
        try:
            for line in output:
                lines.append(line)
                if len(lines) >= lines_wanted:
                    break
            for _ in range(rng.randrange(200_000)):
                pass  # not always right behind an acknowledgement
        finally:
            os.kill(pid, signal.SIGKILL)
            _, status = os.waitpid(pid, 0)
        lines += output
    ended_by = os.waitstatus_to_exitcode(status)
    assert ended_by == -signal.SIGKILL, f"the child ended by itself: {lines[-3:]}"
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
