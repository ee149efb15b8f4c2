"""A loop in a thread of its own."""

from __future__ import annotations

import threading

import pytest

from orbitmq.embedded.loop_thread import LoopThread
from orbitmq.errors import StateError


async def _name_of_thread() -> str:
    return threading.current_thread().name


def test_coroutines_run_in_the_thread_and_their_results_come_back() -> None:
    thread = LoopThread("a loop")
    thread.start()

    assert thread.run(_name_of_thread()) == "a loop"

    thread.stop()
    assert "a loop" not in {one.name for one in threading.enumerate()}


def test_nothing_runs_before_the_start_and_after_the_end() -> None:
    thread = LoopThread("a loop")
    thread.stop()
    with pytest.raises(StateError, match="a loop does not run"):
        thread.run(_name_of_thread())

    thread.start()
    thread.stop()

    with pytest.raises(StateError, match="a loop does not run"):
        thread.run(_name_of_thread())


def test_a_loop_does_not_wait_for_itself() -> None:
    thread = LoopThread("a loop")
    thread.start()

    async def wait_for_itself() -> None:
        thread.run(_name_of_thread())

    with pytest.raises(StateError, match="cannot wait for itself"):
        thread.run(wait_for_itself())
    thread.stop()
