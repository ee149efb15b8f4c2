"""What all blocking clients do: start, stop, call, and refuse misuse."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncGenerator, AsyncIterator

import pytest

from orbitmq.client.sync.blocking_client import BlockingClient, iterating, on_loop, waiting
from orbitmq.errors import StateError
from tests.leftovers import no_threads_since, threads
from tests.unit.client.scripts import run_script
from tests.unit.client.sync.interrupts import interrupted_once


class Echo:
    """An asyncio client without a server."""

    client_id = "echo@1"

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.fails_to_start = False

    async def start(self) -> None:
        self.steps.append("start")
        if self.fails_to_start:
            raise StateError("no name server")

    async def stop(self) -> None:
        self.steps.append("stop")

    async def echo(self, value: int) -> int:
        await asyncio.wait_for(asyncio.get_running_loop().run_in_executor(None, int), 60)
        return value

    def thread(self) -> str:
        return threading.current_thread().name


class BlockingEcho(BlockingClient[Echo]):
    """Its blocking form."""

    def __init__(self) -> None:
        super().__init__(Echo(), what="echo")

    @property
    def inside(self) -> Echo:
        return self._client

    def echo(self, value: int) -> int:
        return self._call(self._client.echo(value))

    def thread(self) -> str:
        return self._do(self._client.thread)

    def stop_on_loop(self) -> None:
        async def stop() -> None:
            self.stop()

        self._call(stop())


class Counter(Echo):
    """An asyncio client with methods to derive blocking ones from."""

    async def double(self, value: int, *, offset: int = 1) -> int:
        """Double it."""
        return 2 * await self.echo(value) + offset

    async def count(self, end: int) -> AsyncIterator[int]:
        """Count up to an end."""
        try:
            for number in range(end):
                yield await self.echo(number)
        finally:
            self.steps.append("counted")

    async def stall(
        self, waits: threading.Event, ends: threading.Event
    ) -> AsyncGenerator[int, None]:
        """Wait forever, and take a while to end."""
        try:
            waits.set()
            await asyncio.Event().wait()
            yield 0
        finally:
            ends.set()
            await self.echo(0)
            self.steps.append("ended")


class BlockingCounter(BlockingClient[Counter]):
    """Its blocking form."""

    def __init__(self) -> None:
        super().__init__(Counter(), what="counter")

    double = waiting(Counter.double)
    count = iterating(Counter.count)
    stall = iterating(Counter.stall)
    thread = on_loop(Counter.thread)

    @property
    def steps(self) -> list[str]:
        return self._client.steps


def _no_loop_is_left() -> None:
    no_threads_since(set(), "orbitmq-loop")


def test_a_client_starts_in_a_with_block_and_leaves_no_thread() -> None:
    with BlockingEcho() as echo:
        assert echo.echo(7) == 7
        assert echo.thread() == "orbitmq-loop"

    assert echo.inside.steps == ["start", "stop"]
    _no_loop_is_left()


def test_derived_methods_wait_and_iterate() -> None:
    assert BlockingCounter().thread() == threading.current_thread().name
    with BlockingCounter() as counter:
        assert counter.double(3, offset=2) == 8
        assert list(counter.count(3)) == [0, 1, 2]
        assert counter.thread() == "orbitmq-loop"

    with pytest.raises(StateError, match="the counter is stopped"):
        counter.double(3)
    with pytest.raises(StateError, match="the counter is stopped"):
        next(counter.count(3))


def test_derived_methods_have_signatures_and_descriptions_of_their_own_kind() -> None:
    assert str(inspect.signature(BlockingCounter.double)) == (
        "(self, value: 'int', *, offset: 'int' = 1) -> 'int'"
    )
    assert str(inspect.signature(BlockingCounter.count)) == "(self, end: 'int') -> 'Iterator[int]'"
    assert str(inspect.signature(BlockingCounter.stall)).endswith("-> 'Iterator[int]'")
    assert BlockingCounter.stall.__annotations__["return"] == "Iterator[int]"
    assert BlockingCounter.double.__doc__ == "Double it."
    assert not inspect.iscoroutinefunction(BlockingCounter.double)


def test_an_iteration_that_is_abandoned_ends_on_the_loop() -> None:
    with BlockingCounter() as counter:
        for number in counter.count(100):
            if number == 2:
                break

        assert counter.steps == ["start", "counted"]


def test_an_interrupted_iteration_ends_before_the_interrupt_is_raised() -> None:
    waits, ends = threading.Event(), threading.Event()

    with (
        BlockingCounter() as counter,
        interrupted_once(waits, ends),
        pytest.raises(KeyboardInterrupt),
    ):
        next(counter.stall(waits, ends))

    assert counter.steps == ["start", "ended", "stop"]


def test_an_iteration_ends_when_its_client_is_stopped() -> None:
    with BlockingCounter() as counter:
        numbers = counter.count(100)
        next(numbers)

    with pytest.raises(StateError, match="the counter is stopped"):
        next(numbers)


def test_a_plain_method_runs_in_the_calling_thread_before_the_start() -> None:
    assert BlockingEcho().thread() == threading.current_thread().name


def test_a_call_before_the_start_is_refused() -> None:
    with pytest.raises(StateError, match=r"the echo is not started \(call start\(\), or use it in"):
        BlockingEcho().echo(1)


def test_a_call_after_the_stop_is_refused() -> None:
    with BlockingEcho() as echo:
        pass

    with pytest.raises(StateError, match=r"the echo is stopped \(make a new one\)"):
        echo.echo(1)


def test_stopping_twice_or_never_started_does_nothing() -> None:
    BlockingEcho().stop()
    echo = BlockingEcho()
    echo.start()

    echo.stop()
    echo.stop()

    assert echo.inside.steps == ["start", "stop"]


def test_a_second_stop_returns_when_the_first_has_ended() -> None:
    may_stop = threading.Event()
    started = threading.Event()

    class Slow(Echo):
        async def stop(self) -> None:
            started.set()
            await asyncio.get_running_loop().run_in_executor(None, may_stop.wait)
            await super().stop()

    class BlockingSlow(BlockingClient[Slow]):
        pass

    slow = Slow()
    client = BlockingSlow(slow, what="slow echo")
    client.start()
    seen: list[list[str]] = []

    def stop_second() -> None:
        client.stop()
        seen.append([*slow.steps])

    first = threading.Thread(target=client.stop)
    second = threading.Thread(target=stop_second)
    first.start()
    started.wait()
    second.start()
    may_stop.set()
    first.join()
    second.join()

    assert seen == [["start", "stop"]]


def test_a_start_that_fails_leaves_no_thread() -> None:
    echo = BlockingEcho()
    echo.inside.fails_to_start = True

    with pytest.raises(StateError, match="no name server"):
        echo.start()

    _no_loop_is_left()


def test_a_stop_ends_a_start_in_progress() -> None:
    class Waiting(Echo):
        def __init__(self) -> None:
            super().__init__()
            self.start_called = threading.Event()

        async def start(self) -> None:
            self.given_up = asyncio.get_running_loop().create_future()
            self.start_called.set()
            await self.given_up

        async def stop(self) -> None:
            await super().stop()
            self.given_up.set_exception(StateError("stopped while it started"))

    waiting = Waiting()
    client = BlockingClient(waiting, what="waiting echo")
    failures: list[str] = []

    def start() -> None:
        try:
            client.start()
        except StateError as error:
            failures.append(str(error))

    starting = threading.Thread(target=start)
    starting.start()
    waiting.start_called.wait()
    client.stop()

    _no_loop_is_left()
    starting.join()
    assert failures == ["stopped while it started"]
    assert waiting.steps == ["stop"]


def test_a_client_is_started_once_and_not_after_a_stop() -> None:
    with BlockingEcho() as echo:
        with pytest.raises(StateError, match=r"the echo is already started"):
            echo.start()
        assert echo.client_id == "echo@1"
    stopped = BlockingEcho()
    stopped.stop()

    for each in (echo, stopped):
        with pytest.raises(StateError, match=r"the echo is stopped"):
            each.start()
    with pytest.raises(StateError, match=r"the echo is not started"):
        _ = BlockingEcho().client_id
    _no_loop_is_left()


def test_two_clients_share_the_loop() -> None:
    with BlockingEcho() as first, BlockingEcho() as second:
        assert first.echo(1) + second.echo(2) == 3
        assert len(threads("orbitmq-loop")) == 1
        first.stop()
        assert second.echo(4) == 4

    _no_loop_is_left()


def test_a_stop_on_the_loop_is_refused_and_changes_nothing() -> None:
    with BlockingEcho() as echo:
        with pytest.raises(StateError, match="would wait for itself"):
            echo.stop_on_loop()

        assert echo.echo(5) == 5


FORKED = """
    import os
    from orbitmq.errors import StateError
    from tests.unit.client.sync.test_blocking_client import BlockingEcho

    started, unstarted = BlockingEcho(), BlockingEcho()
    with started:
        child = os.fork()
        if child == 0:
            for use in (lambda: started.echo(1), unstarted.start):
                try:
                    use()
                except StateError as error:
                    print("child:", error, flush=True)
            started.stop()
            with BlockingEcho() as own:
                print("child works:", own.echo(1), flush=True)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        print("parent works:", started.echo(2))
"""


def test_a_client_of_the_parent_is_refused_in_a_child_and_one_of_its_own_works() -> None:
    refused = (
        "child: this client was made before the process forked, and works in the parent only "
        "(make the client in the child process, after the fork)"
    )

    assert run_script(FORKED).splitlines() == [
        refused,
        refused,
        "child works: 1",
        "parent works: 2",
    ]


MULTIPROCESSING = """
    import multiprocessing
    from tests.unit.client.sync.test_blocking_client import BlockingEcho, echo_in_child

    if __name__ == "__main__":
        context = multiprocessing.get_context("fork")
        with BlockingEcho() as echo:
            with context.Pool(2) as pool:
                print(sorted(pool.map(echo_in_child, range(4))))
            print(echo.echo(9))
"""


def echo_in_child(value: int) -> int:
    """Make a client of its own, in a worker process."""
    with BlockingEcho() as echo:
        return echo.echo(value)


def test_clients_work_in_processes_of_multiprocessing() -> None:
    assert run_script(MULTIPROCESSING).splitlines() == ["[0, 1, 2, 3]", "9"]


def test_a_running_client_is_stopped_at_exit() -> None:
    printed = run_script(
        """
        from tests.unit.client.sync.test_blocking_client import BlockingEcho, Echo

        async def stop(self):
            print("stopped", flush=True)

        Echo.stop = stop
        echo = BlockingEcho()
        echo.start()
        print(echo.echo(3))
        """
    )

    assert printed.splitlines() == ["3", "stopped"]
