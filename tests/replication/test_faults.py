"""Clusters of processes under random schedules of faults keep every promise."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import pytest

from orbitmq.store.config import FlushMode
from tests.crash.conftest import SHARED_MEMORY
from tests.replication.checker import violations
from tests.replication.cluster import Server, Shape
from tests.replication.findings import Rule
from tests.replication.history import Event, Promoted
from tests.replication.runner import Outcome, run

# Starts processes, which is slow on a busy machine. What fails here is about messages.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.final]

# Shapes, and their seeds. Twenty in all, with that of the last test, take about two minutes.
SCHEDULES: dict[Shape, Sequence[int]] = {
    Shape(flush=FlushMode.SYNC): range(1, 4),
    Shape(slaves=1, flush=FlushMode.SYNC): range(6, 9),
    Shape(slaves=1, flush=FlushMode.ASYNC): range(11, 15),
    Shape(slaves=1, sync=True, flush=FlushMode.SYNC): range(16, 20),
    # Killed while its slave lags; deposed while it lives, and promoted again.
    Shape(slaves=1, promotes=True, flush=FlushMode.ASYNC): (22, 15),
    # Cut off from everybody; killed, and promoted again.
    Shape(slaves=1, sync=True, promotes=True, flush=FlushMode.SYNC): (42, 14),
    # Cut off from its slaves and the name server, not from clients.
    Shape(slaves=2, sync=True, promotes=True, flush=FlushMode.SYNC): (31,),
}


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder in memory, if possible: servers that wait for the disk meet fewer faults."""
    home = SHARED_MEMORY if SHARED_MEMORY.is_dir() else None
    made = Path(tempfile.mkdtemp(prefix="orbitmq-faults-", dir=home))
    yield made
    shutil.rmtree(made)


@pytest.mark.parametrize("shape", SCHEDULES, ids=str)
async def test_schedules_of_faults_break_no_promise(folder: Path, shape: Shape) -> None:
    async with aclosing(run(folder, SCHEDULES[shape], shape)) as outcomes:
        async for outcome in outcomes:
            assert outcome.problems == [], str(outcome)
            counts = outcome.counts()
            assert counts["acked"] > 0
            assert bool(counts["promoted"]) == shape.promotes
            if counts["lost"]:
                _check_announcements(outcome)


def _check_announcements(outcome: Outcome) -> None:
    """The checker notices if promotions had announced less, or more, than what is lost."""
    for error, broken in ((5, Rule.KEPT), (-5, Rule.ANNOUNCED)):
        found = violations([_announcing(event, error) for event in outcome.history])
        assert broken in {violation.rule for violation in found}, str(outcome)


def _announcing(event: Event, error: int) -> Event:
    if not isinstance(event, Promoted):
        return event
    losses = [loss._replace(kept=max(0, loss.kept + error)) for loss in event.announced]
    return replace(event, announced=tuple(losses))


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
