"""Clusters of processes under random schedules of faults keep every promise."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path

import pytest

from orbitmq.store.config import FlushMode
from tests.crash.conftest import SHARED_MEMORY
from tests.replication.cluster import Server, Shape
from tests.replication.runner import run

# Starts processes, which is slow on a busy machine. What fails here is about messages.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.final]

SHAPES = [
    Shape(flush=FlushMode.SYNC),
    Shape(slaves=1, flush=FlushMode.SYNC),
    Shape(slaves=1, flush=FlushMode.ASYNC),
    Shape(slaves=1, sync=True, flush=FlushMode.SYNC),
]
# Twenty in all take two minutes.
SCHEDULES = 5


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder in memory, if possible: servers that wait for the disk meet fewer faults."""
    home = SHARED_MEMORY if SHARED_MEMORY.is_dir() else None
    made = Path(tempfile.mkdtemp(prefix="orbitmq-faults-", dir=home))
    yield made
    shutil.rmtree(made)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
async def test_schedules_of_faults_break_no_promise(folder: Path, shape: Shape) -> None:
    first = 1 + SHAPES.index(shape) * SCHEDULES
    async with aclosing(run(folder, range(first, first + SCHEDULES), shape)) as outcomes:
        async for outcome in outcomes:
            assert outcome.problems == [], str(outcome)
            assert outcome.counts()["acked"] > 0


async def test_a_server_that_forgets_its_last_messages_is_found_out(folder: Path) -> None:
    """The whole chain can fail: clients, history and checker notice what a broker has lost."""

    def lose_the_log(server: Server) -> None:
        for part in ("commitlog", "consumequeue", "checkpoint", "orbitmq"):
            path = server.process.process.folder / "store" / part
            shutil.rmtree(path, ignore_errors=True)
            path.unlink(missing_ok=True)

    # The second schedule kills its broker.
    outcomes = [each async for each in run(folder, [2], Shape(), sabotage=lose_the_log)]

    (outcome,) = outcomes
    assert any("is lost" in problem for problem in outcome.problems), str(outcome)
