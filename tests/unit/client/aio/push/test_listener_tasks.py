"""Async listeners in tasks: one while they do not wait, many when they do."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from orbitmq.client.aio.push.listener_tasks import ListenerTasks
from orbitmq.client.aio.push.listeners import Finished, listener_of
from orbitmq.client.core.consuming.consume_results import RETRY_LATER, ConsumeResult
from orbitmq.client.core.consuming.received_message import ReceivedMessage
from orbitmq.clock import Clock, ManualClock, SystemClock, settle
from tests.unit.client.aio.received import call_of, offsets_of, run_of, several

GRACE_MS = 60_000.0


class Gate:
    """A listener that waits, and counts its concurrent calls."""

    def __init__(self) -> None:
        self.inside = 0
        self.most = 0
        self.opened = asyncio.Event()
        self.tasks: set[object] = set()

    async def __call__(self, _message: ReceivedMessage) -> None:
        self.tasks.add(asyncio.current_task())
        self.inside += 1
        self.most = max(self.most, self.inside)
        try:
            await self.opened.wait()
        finally:
            self.inside -= 1


def pool_of(
    listener: Any,
    finished: list[Finished],
    *,
    concurrency: int = 20,
    clock: Clock | None = None,
) -> ListenerTasks:
    # With a stopped clock no call takes long, so none yields to others.
    return ListenerTasks(
        call_of(listener_of(listener, None), clock=clock or ManualClock()),
        concurrency=concurrency,
        on_finished=finished.extend,
        name="billing",
    )


async def test_a_listener_that_does_not_wait_runs_in_one_task() -> None:
    tasks: set[object] = set()
    finished: list[Finished] = []

    async def quick(_message: ReceivedMessage) -> None:
        tasks.add(asyncio.current_task())

    pool = pool_of(quick, finished)
    pool.submit(run_of([one]) for one in several(0, 200))
    await settle()

    assert offsets_of(finished) == list(range(200))
    assert len(tasks) == 1
    assert await pool.stop(GRACE_MS) == ()


async def test_a_listener_that_waits_runs_in_many_tasks_but_no_more_than_allowed() -> None:
    gate, finished = Gate(), list[Finished]()
    pool = pool_of(gate, finished, concurrency=7)

    pool.submit(run_of([one]) for one in several(0, 30))
    await settle()
    assert (gate.inside, pool.waiting, len(pool.workers)) == (7, 23, 7)

    gate.opened.set()
    await settle(100)
    assert (gate.most, sorted(offsets_of(finished))) == (7, list(range(30)))
    await pool.stop(GRACE_MS)


async def test_concurrency_changes_while_it_runs() -> None:
    gate, finished = Gate(), list[Finished]()
    pool = pool_of(gate, finished, concurrency=2)
    pool.submit(run_of([one]) for one in several(0, 30))
    await settle()

    pool.concurrency = 5
    await settle()
    assert gate.inside == 5
    pool.concurrency = 1
    gate.opened.set()
    await settle(200)

    assert len(finished) == 30
    assert pool.concurrency == 1
    await pool.stop(GRACE_MS)


async def test_a_run_ends_with_the_first_batch_that_is_not_done() -> None:
    finished: list[Finished] = []

    async def listener(message: ReceivedMessage) -> ConsumeResult | None:
        return RETRY_LATER if message.queue_offset == 2 else None

    pool = pool_of(listener, finished)
    pool.submit([run_of(*([one] for one in several(0, 5)), reports_end=True)])
    await settle()

    assert offsets_of(finished) == [0, 1, 2]
    assert finished[-1].messages == []
    await pool.stop(GRACE_MS)


async def test_others_have_their_turn_while_a_listener_never_waits() -> None:
    turns = 0

    async def busy(_message: ReceivedMessage) -> None:
        end = asyncio.get_running_loop().time() + 0.002
        while asyncio.get_running_loop().time() < end:
            pass

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await settle(1)

    finished: list[Finished] = []
    pool = pool_of(busy, finished, concurrency=1, clock=SystemClock())
    counting = asyncio.create_task(other())
    pool.submit(run_of([one]) for one in several(0, 20))
    while len(finished) < 20:
        await settle(1)
    counting.cancel()

    assert turns > 5
    await pool.stop(GRACE_MS)


async def test_stopping_waits_for_running_calls_and_starts_no_more() -> None:
    gate, finished = Gate(), list[Finished]()
    pool = pool_of(gate, finished, concurrency=1)
    pool.submit(run_of([one]) for one in several(0, 5))
    await settle()

    stopping = asyncio.create_task(pool.stop(GRACE_MS))
    await settle()
    gate.opened.set()

    assert await stopping == ()
    assert offsets_of(finished) == [0]
    pool.submit([run_of(several(9, 1))])
    assert pool.waiting == 0


async def test_stopping_cancels_what_hangs() -> None:
    gate, finished = Gate(), list[Finished]()
    pool = pool_of(gate, finished)
    pool.submit([run_of(several(3, 1))])
    await settle()

    (left,) = await pool.stop(1)

    assert left.messages[0].queue_offset == 3
    assert (gate.inside, finished, pool.workers) == (0, [], [])


async def test_an_error_in_the_collector_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def failing(_finished: Sequence[Finished]) -> None:
        raise ValueError

    async def quick(_message: ReceivedMessage) -> None:
        """Do nothing."""

    pool = ListenerTasks(
        call_of(listener_of(quick, None)), concurrency=1, on_finished=failing, name="billing"
    )
    pool.submit([run_of(several(0, 1))])
    await settle()

    assert "cannot process finished messages" in caplog.text
    await pool.stop(GRACE_MS)
