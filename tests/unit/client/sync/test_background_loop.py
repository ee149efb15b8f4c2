"""The background loop: who shares it, who may wait for it, and how it ends."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future

import pytest

from orbitmq.client.sync import background_loop
from orbitmq.client.sync.background_loop import BackgroundLoop, acquire, release
from orbitmq.clock import settle
from orbitmq.errors import StateError
from tests.leftovers import no_threads_since, threads
from tests.unit.client.scripts import refuse_to_start, run_script
from tests.unit.client.sync.interrupts import interrupted_once

WAIT_SECONDS = 60


@pytest.fixture
def loop() -> Iterator[BackgroundLoop]:
    no_threads_since(set(), "orbitmq-loop")
    loop = acquire()
    yield loop
    release(loop)
    no_threads_since(set(), "orbitmq-loop")


async def _answer(value: int) -> int:
    await asyncio.wait_for(asyncio.get_running_loop().run_in_executor(None, int), WAIT_SECONDS)
    return value


async def _fail() -> None:
    raise ValueError("from the loop")


def test_a_call_returns_the_result_of_the_work(loop: BackgroundLoop) -> None:
    assert loop.call(_answer(7)) == 7


def test_a_call_raises_the_error_of_the_work(loop: BackgroundLoop) -> None:
    with pytest.raises(ValueError, match="from the loop"):
        loop.call(_fail())


def test_all_share_one_loop_until_the_last_releases_it(loop: BackgroundLoop) -> None:
    second = acquire()
    assert second is loop
    release(second)

    assert loop.call(_answer(1)) == 1
    assert len(threads("orbitmq-loop")) == 1


def test_after_the_last_release_there_is_a_new_loop() -> None:
    first = acquire()
    release(first)
    second = acquire()

    assert second is not first
    assert second.call(_answer(2)) == 2
    release(second)


def test_many_threads_may_call_at_once(loop: BackgroundLoop) -> None:
    results: list[int] = []

    def call_often(number: int) -> None:
        results.extend(loop.call(_answer(number)) for _ in range(20))

    threads = [threading.Thread(target=call_often, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(results) == sorted([*range(5)] * 20)


def test_the_work_has_the_context_of_the_caller(loop: BackgroundLoop) -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")
    variable.set("of the caller")

    async def read() -> str:
        return variable.get()

    assert loop.call(read()) == "of the caller"


def test_a_call_from_the_loop_itself_is_refused(loop: BackgroundLoop) -> None:
    async def call_again() -> int:
        return loop.call(_answer(1))

    with pytest.raises(StateError, match=r"would wait for itself \(use orbitmq.client.aio"):
        loop.call(call_again())


def test_a_running_loop_of_the_caller_does_not_matter(loop: BackgroundLoop) -> None:
    async def main() -> int:
        return loop.call(_answer(3))

    assert asyncio.run(main()) == 3


def test_an_interrupt_cancels_the_work(loop: BackgroundLoop) -> None:
    started, cancelled = threading.Event(), threading.Event()

    async def wait() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    with interrupted_once(started, cancelled), pytest.raises(KeyboardInterrupt):
        loop.call(wait())

    assert cancelled.wait(WAIT_SECONDS)
    assert loop.call(_answer(1)) == 1


@pytest.mark.parametrize("is_scheduled", [False, True])
def test_an_interrupt_before_the_wait_leaves_no_work_behind(
    loop: BackgroundLoop, monkeypatch: pytest.MonkeyPatch, *, is_scheduled: bool
) -> None:
    on_loop = loop._on_loop

    async def wait() -> None:
        await asyncio.Event().wait()

    def interrupted(action: Callable[[], object]) -> None:
        monkeypatch.undo()
        if is_scheduled:
            on_loop(action)
        raise KeyboardInterrupt

    monkeypatch.setattr(loop, "_on_loop", interrupted)
    work = wait()
    with pytest.raises(KeyboardInterrupt):
        loop.call(work)

    async def others() -> int:
        await settle()
        return len(asyncio.all_tasks())

    # The loop's own task and this one.
    assert loop.call(others()) == 2
    assert inspect.getcoroutinestate(work) == inspect.CORO_CLOSED


def test_a_pending_call_is_cancelled_when_the_loop_ends() -> None:
    loop = acquire()
    started = threading.Event()
    raised: Future[None] = Future()

    async def wait() -> None:
        started.set()
        await asyncio.Event().wait()

    def call() -> None:
        try:
            loop.call(wait())
        except StateError as error:
            raised.set_exception(error)

    thread = threading.Thread(target=call)
    thread.start()
    assert started.wait(WAIT_SECONDS)
    release(loop)

    thread.join()
    with pytest.raises(StateError, match="the call was cancelled"):
        raised.result(WAIT_SECONDS)


def test_a_call_that_the_loop_never_starts_is_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = acquire()
    requested = threading.Semaphore(0)
    # As if the loop had just taken its last turn: the request comes too late.
    monkeypatch.setattr(loop, "_on_loop", lambda _: requested.release())
    raised: list[BaseException] = []

    def call() -> None:
        try:
            loop.call(_answer(1))
        except StateError as error:
            raised.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    requested.acquire()
    future: Future[None] = loop.start_future(asyncio.Future)
    release(loop)

    thread.join()
    assert len(raised) == 1
    assert future.cancelled()


def test_calls_after_the_end_are_refused() -> None:
    loop = acquire()
    release(loop)

    with pytest.raises(StateError, match=r"the client is stopped \(make a new one\)"):
        loop.call(_answer(1))
    with pytest.raises(StateError, match="the client is stopped"):
        loop.start_future(asyncio.Future)


def test_the_loop_ends_when_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = acquire()
    assert loop.call(_answer(1)) == 1

    monkeypatch.setattr(threading.Thread, "start", refuse_to_start)
    release(loop)

    no_threads_since(set(), "orbitmq-")


def test_work_that_gets_no_thread_of_its_own_is_done_once(
    loop: BackgroundLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_end = threading.Event()
    done: list[str] = []
    waiting = loop.start_future(lambda: asyncio.ensure_future(asyncio.to_thread(may_end.wait)))
    assert loop.call(asyncio.to_thread(lambda: 1)) == 1

    monkeypatch.setattr(threading.Thread, "start", refuse_to_start)
    loop.call(_together(lambda: done.append("done"), 5))
    may_end.set()
    waiting.result(WAIT_SECONDS)
    monkeypatch.undo()

    # The threads take work in order: theirs is done by now.
    assert loop.call(_answer(1)) == 1
    assert done == ["done"] * 5


async def _together(work: Callable[[], None], count: int) -> None:
    await asyncio.gather(*(asyncio.to_thread(work) for _ in range(count)))


def test_work_in_flight_may_still_call_when_the_loop_ends() -> None:
    loop = acquire()
    started, may_call = threading.Event(), threading.Event()
    results: list[int] = []

    def work() -> None:
        started.set()
        may_call.wait()
        results.append(loop.call(_number(7)))

    async def wait_for_end() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            may_call.set()

    loop.start_future(lambda: asyncio.ensure_future(asyncio.to_thread(work)))
    loop.start_future(lambda: asyncio.ensure_future(wait_for_end()))
    assert started.wait(WAIT_SECONDS)
    release(loop)

    assert results == [7]


async def _number(value: int) -> int:
    return value


def test_a_failed_start_of_the_loop_is_raised_and_can_be_retried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail() -> asyncio.AbstractEventLoop:
        raise OSError("too many open files")

    monkeypatch.setattr(background_loop, "native_loop", fail)
    with pytest.raises(OSError, match="too many open files"):
        acquire()
    monkeypatch.undo()

    loop = acquire()
    assert loop.call(_answer(1)) == 1
    release(loop)


def test_an_interrupt_at_the_end_of_the_start_leaves_no_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Interrupted(set[BackgroundLoop]):
        def add(self, _: BackgroundLoop) -> None:
            raise KeyboardInterrupt

    monkeypatch.setattr(background_loop._process, "running", Interrupted())
    with pytest.raises(KeyboardInterrupt):
        acquire()
    monkeypatch.undo()

    no_threads_since(set(), "orbitmq-loop")


# --- futures ------------------------------------------------------------------------------------


def test_started_work_gives_a_future_of_its_result(loop: BackgroundLoop) -> None:
    future = loop.start_future(lambda: asyncio.ensure_future(_answer(5)))

    assert future.result(WAIT_SECONDS) == 5


def test_started_work_gives_a_future_of_its_error(loop: BackgroundLoop) -> None:
    future = loop.start_future(lambda: asyncio.ensure_future(_fail()))

    with pytest.raises(ValueError, match="from the loop"):
        future.result(WAIT_SECONDS)


def test_work_that_cannot_start_gives_its_error_through_the_future(loop: BackgroundLoop) -> None:
    def start() -> asyncio.Future[None]:
        raise ValueError("at once")

    with pytest.raises(ValueError, match="at once"):
        loop.start_future(start).result(WAIT_SECONDS)


def test_a_future_that_is_cancelled_cancels_the_work(loop: BackgroundLoop) -> None:
    started, cancelled = threading.Event(), threading.Event()

    async def wait() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    future = loop.start_future(lambda: asyncio.ensure_future(wait()))
    assert started.wait(WAIT_SECONDS)

    assert future.cancel()

    assert cancelled.wait(WAIT_SECONDS)


def test_work_that_is_cancelled_cancels_the_future(loop: BackgroundLoop) -> None:
    def start() -> asyncio.Future[None]:
        inner: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        inner.cancel()
        return inner

    with pytest.raises(CancelledError):
        loop.start_future(start).result(WAIT_SECONDS)


# --- processes ----------------------------------------------------------------------------------


def test_a_child_gets_a_loop_of_its_own_and_the_parent_keeps_its() -> None:
    printed = run_script(
        """
        import os
        from orbitmq.client.sync.background_loop import acquire, release
        from orbitmq.errors import StateError

        async def process_id():
            return os.getpid()

        loop = acquire()
        assert loop.call(process_id()) == os.getpid()
        child = os.fork()
        if child == 0:
            try:
                loop.call(process_id())
            except StateError as error:
                print("child:", error, flush=True)
            try:
                loop.start_future(None)
            except StateError as error:
                print("child:", error, flush=True)
            release(loop)
            own = acquire()
            assert own is not loop
            print("child works:", own.call(process_id()) == os.getpid(), flush=True)
            release(own)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        print("parent works:", loop.call(process_id()) == os.getpid())
        release(loop)
        """
    )

    refused = (
        "child: this client was made before the process forked, and works in the parent only "
        "(make the client in the child process, after the fork)"
    )
    assert printed.splitlines() == [refused, refused, "child works: True", "parent works: True"]


def test_running_clients_are_stopped_at_exit() -> None:
    printed = run_script(
        """
        import asyncio
        from orbitmq.client.sync.background_loop import acquire

        async def stop():
            print("stopped", flush=True)

        async def other():
            print("stopped by its owner")

        loop = acquire()
        loop.stop_at_exit(stop)
        loop.stop_at_exit(other)
        loop.cancel_stop_at_exit(other)
        """
    )

    assert printed == "stopped\n"


def test_threads_that_still_run_at_exit_can_call() -> None:
    printed = run_script(
        """
        import threading
        from orbitmq.client.sync.background_loop import acquire

        async def answer(value):
            return value

        def work():
            threading.main_thread().join()
            print(sum(loop.call(answer(number)) for number in range(100)), flush=True)

        loop = acquire()
        threading.Thread(target=work).start()
        """
    )

    assert printed == "4950\n"


def test_a_client_that_is_stopped_at_exit_may_still_work_off_the_loop() -> None:
    printed = run_script(
        """
        import asyncio
        from orbitmq.client.sync.background_loop import acquire

        async def fail():
            def work():
                raise ValueError("at exit")

            try:
                await asyncio.to_thread(work)
            except ValueError as error:
                print(error)

        async def stop():
            print(await asyncio.to_thread(lambda: "written"))
            await fail()

        loop = acquire()
        assert loop.call(asyncio.to_thread(lambda: 7)) == 7
        loop.stop_at_exit(stop)
        """
    )

    assert printed.splitlines() == ["written", "at exit"]
