"""Stuck listeners are logged in one line."""

from __future__ import annotations

import asyncio
import threading

import pytest

from orbitmq.client.aio.push.listener_tasks import ListenerTasks
from orbitmq.client.aio.push.listener_threads import ListenerThreads
from orbitmq.client.aio.push.listeners import Worker, listener_of
from orbitmq.client.aio.push.stall_watch import StallWatch, location_of, stacks
from orbitmq.client.core.consuming.received_message import ReceivedMessage
from orbitmq.clock import ManualClock, settle
from tests.unit.client.aio.received import call_of, received, run_of, several


def _ignore(_finished: object) -> None:
    """Nobody asks."""


def worker_at(offset: int, started_ms: float) -> Worker:
    worker = Worker()
    worker.messages = [received(offset)]
    worker.run = run_of(worker.messages)
    worker.started_ms = started_ms
    worker.thread_id = threading.get_ident()
    return worker


async def test_a_stuck_listener_is_logged_once_and_again_after_twice_the_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock()
    worker = worker_at(7, clock.monotonic_ms())
    quick = Worker()
    watch = StallWatch("billing", lambda: [worker, quick], limit_ms=10_000, clock=clock)
    watch.start()

    await clock.advance(9_000)
    assert caplog.records == []
    await clock.advance(2_000)
    assert len(caplog.records) == 1
    assert (
        "listener stalled group=billing topic=orders broker=broker-a queue=1 offset=7 "
        "message=id-7 messages=1 seconds=10 at=" in caplog.text
    )

    await clock.advance(8_000)
    assert len(caplog.records) == 1
    await clock.advance(5_000)
    assert len(caplog.records) == 2

    worker.messages = [received(8)]
    worker.started_ms = clock.monotonic_ms()
    await clock.advance(15_000)
    assert "offset=8" in caplog.records[-1].getMessage()
    worker.run = None
    await clock.advance(100_000)
    assert len(caplog.records) == 3
    await watch.stop()


async def test_the_location_of_a_thread_is_described() -> None:
    begun = asyncio.Event()
    loop = asyncio.get_running_loop()
    # A lock, not an event, whose frames would hide where the listener is.
    go_on = threading.Lock()
    go_on.acquire()

    def stuck_in_here(_message: ReceivedMessage) -> None:
        loop.call_soon_threadsafe(begun.set)
        go_on.acquire(timeout=60)

    pool = ListenerThreads(
        call_of(listener_of(stuck_in_here, None)),
        concurrency=1,
        on_finished=_ignore,
        name="billing",
    )
    pool.submit([run_of(several(0, 1))])
    await begun.wait()

    location = location_of(pool.workers[0])
    everything = stacks()
    go_on.release()
    await pool.stop(60_000)

    assert "stuck_in_here" in location
    assert f"{__file__}:" in location
    assert "stuck_in_here" in everything


async def test_the_location_of_a_task_is_described() -> None:
    async def waits_for_ever() -> None:
        await asyncio.Event().wait()

    async def stuck_in_here(_message: ReceivedMessage) -> None:
        await waits_for_ever()

    pool = ListenerTasks(
        call_of(listener_of(stuck_in_here, None)),
        concurrency=1,
        on_finished=_ignore,
        name="billing",
    )
    pool.submit([run_of(several(0, 1))])
    await settle()

    location = location_of(pool.workers[0])
    await pool.stop(0)

    assert "waits_for_ever" in location
    assert "stuck_in_here" in location


def test_a_worker_without_a_location_is_no_error() -> None:
    assert location_of(Worker()) == "unknown"
