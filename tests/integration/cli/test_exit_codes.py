"""What scripts learn from the exit code: commands as processes, interrupted or left without input."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from orbitmq.embedded import Cluster
from tests.integration.cli.conftest import Run
from tests.integration.cli.test_namesrv import COMMAND, WAIT_SECONDS


@pytest.fixture
def topic(run: Run) -> str:
    run("topic", "create", "orders", "-q", "1", "--broker", "broker-a")
    run("group", "create", "billing")
    run("message", "send", "orders", "first")
    return "orders"


@contextmanager
def started(line: str) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        [*COMMAND, *line.split()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize(
    "line",
    [
        "message tail orders --follow",
        "group lag billing --watch --json",
        "topic delete orders",
    ],
)
def test_a_command_that_ctrl_c_ends_has_its_own_code(run: Run, topic: str, line: str) -> None:
    with started(line) as process:
        # It runs, or asks, once it has written something.
        assert process.stdout is not None
        first = process.stdout.read(1)
        process.send_signal(signal.SIGINT)
        rest, said = process.communicate(timeout=WAIT_SECONDS)

    assert first
    assert process.returncode == 130, said
    assert b"Traceback" not in said
    assert b"bort" not in rest + said
    assert topic in run("topic", "list").stdout


def test_without_an_answer_nothing_is_done(cluster: Cluster, run: Run, topic: str) -> None:
    with started(f"topic delete {topic} --namesrv {cluster.namesrv}") as process:
        shown, said = process.communicate(timeout=WAIT_SECONDS)

    assert process.returncode == 5
    assert b"nothing was done; there was no answer: give --yes" in shown
    assert b"Aborted" not in shown + said
    assert topic in run("topic", "list").stdout
