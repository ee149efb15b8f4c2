"""Plain listeners in threads: few when they are quick, many when they wait."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from orbitmq.client.aio.push.listener_threads import ListenerThreads
from orbitmq.client.aio.push.listeners import Finished, listener_of
from orbitmq.client.core.consuming.consume_results import RETRY_LATER, ConsumeResult
from orbitmq.client.core.consuming.received_message import ReceivedMessage
from orbitmq.clock import Clock, ManualClock, settle
from tests.leftovers import no_threads_on_loop_since, threads
from tests.unit.client.aio.received import call_of, offsets_of, received, run_of, several
from tests.unit.client.scripts import refuse_to_start

WAIT_SECONDS = 60
GRACE_MS = 60_000.0


class Collected:
    """What a pool has finished; tests wait for a number of messages."""

    def __init__(self) -> None:
        self.items: list[Finished] = []
        self._changed = asyncio.Event()

    def __call__(self, finished: Sequence[Finished]) -> None:
        self.items += finished
        self._changed.set()

    async def messages(self, count: int) -> None:
        await self._until(lambda: len(offsets_of(self.items)) >= count)

    async def runs_ended(self, count: int) -> None:
        await self._until(lambda: sum(not item.messages for item in self.items) >= count)

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._changed.clear()
            await asyncio.wait_for(self._changed.wait(), WAIT_SECONDS)


def pool_of(
    listener: Callable[[ReceivedMessage], ConsumeResult | None],
    collected: Collected,
    *,
    concurrency: int = 20,
    executor: ThreadPoolExecutor | None = None,
    clock: Clock | None = None,
) -> ListenerThreads:
    return ListenerThreads(
        call_of(listener_of(listener, None), clock=clock),
        concurrency=concurrency,
        on_finished=collected,
        name="billing",
        executor=executor,
    )


class Gate:
    """A listener that waits, and counts its concurrent calls."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.inside = 0
        self.most = 0
        self.changed = asyncio.Event()
        self.loop = asyncio.get_running_loop()
        self.opened = threading.Event()

    def __call__(self, _message: ReceivedMessage) -> None:
        with self.lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
        self.loop.call_soon_threadsafe(self.changed.set)
        self.opened.wait(WAIT_SECONDS)
        with self.lock:
            self.inside -= 1

    async def entered(self, count: int) -> None:
        while self.inside < count:
            self.changed.clear()
            await asyncio.wait_for(self.changed.wait(), WAIT_SECONDS)


async def test_all_runs_are_done() -> None:
    collected = Collected()
    pool = pool_of(lambda _message: None, collected)

    pool.submit(run_of([one]) for one in several(0, 500))
    pool.submit(run_of([one]) for one in several(500, 500))
    await collected.messages(1000)

    assert sorted(offsets_of(collected.items)) == list(range(1000))
    assert await pool.stop(GRACE_MS) == ()


async def test_quick_calls_share_few_threads() -> None:
    idents: set[int] = set()
    collected = Collected()
    # With this clock every call is quick, however long its thread waits for a processor.
    pool = pool_of(
        lambda _message: idents.add(threading.get_ident()), collected, clock=ManualClock()
    )

    pool.submit(run_of([one]) for one in several(0, 1000))
    await collected.messages(1000)

    assert len(idents) == 1
    await pool.stop(GRACE_MS)


async def test_calls_that_wait_use_all_threads_but_no_more() -> None:
    gate, collected = Gate(), Collected()
    pool = pool_of(gate, collected, concurrency=8)

    pool.submit(run_of([one]) for one in several(0, 20))
    await gate.entered(8)
    assert pool.waiting == 12

    gate.opened.set()
    await collected.messages(20)
    assert gate.most == 8
    await pool.stop(GRACE_MS)


async def test_later_messages_do_not_wait_for_a_call_that_hangs() -> None:
    gate, collected = Gate(), Collected()

    def listener(message: ReceivedMessage) -> None:
        if message.body == b"hang":
            gate(message)

    pool = pool_of(listener, collected)
    pool.submit([run_of([received(0, b"hang")])])
    await gate.entered(1)

    pool.submit(run_of([one]) for one in several(1, 10))
    await collected.messages(10)

    assert sorted(offsets_of(collected.items)) == list(range(1, 11))
    assert [worker.messages[0].queue_offset for worker in pool.workers if worker.run] == [0]
    gate.opened.set()
    await pool.stop(GRACE_MS)


async def test_concurrency_changes_while_it_runs() -> None:
    gate, collected = Gate(), Collected()
    pool = pool_of(gate, collected, concurrency=2)
    pool.submit(run_of([one]) for one in several(0, 30))
    await gate.entered(2)

    pool.concurrency = 6
    await gate.entered(6)
    pool.concurrency = 1
    gate.opened.set()
    await collected.messages(30)

    assert (gate.most, pool.concurrency) == (6, 1)
    await pool.stop(GRACE_MS)


async def test_a_run_ends_with_the_first_batch_that_is_not_done() -> None:
    collected = Collected()
    pool = pool_of(lambda message: RETRY_LATER if message.queue_offset == 2 else None, collected)

    pool.submit([run_of(*([one] for one in several(0, 5)), reports_end=True)])
    await collected.messages(3)
    await pool.stop(GRACE_MS)

    assert offsets_of(collected.items) == [0, 1, 2]
    assert collected.items[-1].messages == []


async def test_no_batch_starts_without_permission() -> None:
    collected = Collected()
    pool = pool_of(lambda _message: None, collected)
    run = run_of(several(0, 1), reports_end=True)
    run.window.drop()

    pool.submit([run])
    await collected.runs_ended(1)
    await pool.stop(GRACE_MS)

    assert [item.messages for item in collected.items] == [[]]


async def test_stopping_waits_for_running_calls_and_starts_no_more() -> None:
    gate, collected = Gate(), Collected()
    pool = pool_of(gate, collected, concurrency=1)
    pool.submit(run_of([one]) for one in several(0, 5))
    await gate.entered(1)

    stopping = asyncio.create_task(pool.stop(GRACE_MS))
    await settle()
    gate.opened.set()

    assert await stopping == ()
    assert offsets_of(collected.items) == [0]
    pool.submit([run_of(several(9, 1))])
    assert pool.waiting == 0


async def test_stopping_abandons_a_call_that_hangs() -> None:
    gate, collected = Gate(), Collected()
    pool = pool_of(gate, collected)
    pool.submit([run_of(several(3, 1))])
    await gate.entered(1)

    (left,) = await pool.stop(1)

    assert left.messages[0].queue_offset == 3
    assert collected.items == []
    gate.opened.set()


async def test_no_thread_is_left_after_stop() -> None:
    before = threads()
    gate, collected = Gate(), Collected()
    pool = pool_of(gate, collected, concurrency=5)
    pool.submit(run_of([one]) for one in several(0, 5))
    await gate.entered(5)
    assert len(threads("billing-") - before) == 5

    gate.opened.set()
    await pool.stop(GRACE_MS)

    await no_threads_on_loop_since(before)


async def test_an_executor_of_the_user_can_be_used() -> None:
    names: set[str] = set()
    collected = Collected()
    with ThreadPoolExecutor(2, thread_name_prefix="mine") as executor:
        pool = pool_of(
            lambda _message: names.add(threading.current_thread().name),
            collected,
            executor=executor,
        )
        pool.submit(run_of([one]) for one in several(0, 50))
        await collected.messages(50)
        await pool.stop(GRACE_MS)

    assert names
    assert all(name.startswith("mine") for name in names)


async def test_a_worker_without_a_thread_is_not_in_a_call_when_the_pool_stops() -> None:
    collected = Collected()
    busy = threading.Event()
    with ThreadPoolExecutor(1) as executor:
        executor.submit(busy.wait, WAIT_SECONDS)
        pool = pool_of(lambda _message: None, collected, executor=executor)
        pool.submit([run_of(several(0, 1))])

        left = await pool.stop(10)
        busy.set()

    assert not left
    assert not collected.items


async def test_own_threads_take_over_when_the_executor_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    collected = Collected()
    executor = ThreadPoolExecutor(1)
    pool = pool_of(lambda _message: None, collected, executor=executor)
    executor.shutdown()

    pool.submit([run_of(several(0, 1))])
    await collected.messages(1)

    assert "executor refuses work" in caplog.text
    await pool.stop(GRACE_MS)


async def test_a_pool_without_threads_warns_and_stops_at_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    collected = Collected()
    pool = pool_of(lambda _message: None, collected)
    monkeypatch.setattr(threading.Thread, "start", refuse_to_start)

    pool.submit([run_of(several(0, 1))])
    async with asyncio.timeout(WAIT_SECONDS / 2):
        left = await pool.stop(GRACE_MS)

    assert not left
    assert not collected.items
    assert "cannot start a thread for the listener" in caplog.text


async def test_an_error_in_the_collector_does_not_stop_the_pool(
    caplog: pytest.LogCaptureFixture,
) -> None:
    collected = Collected()
    calls: list[int] = []

    def failing_once(finished: Sequence[Finished]) -> None:
        calls.append(len(finished))
        if len(calls) == 1:
            raise ValueError("once")
        collected(finished)

    pool = ListenerThreads(
        call_of(listener_of(lambda _message: None, None)),
        concurrency=1,
        on_finished=failing_once,
        name="billing",
    )
    pool.submit([run_of(several(0, 1))])
    while not calls:
        await asyncio.wait_for(_turn(), WAIT_SECONDS)
    pool.submit([run_of(several(1, 1))])
    await collected.messages(1)

    assert "cannot process finished messages" in caplog.text
    await pool.stop(GRACE_MS)


async def _turn() -> None:
    done = asyncio.Event()
    asyncio.get_running_loop().call_later(0.001, done.set)
    await done.wait()
