"""Daemon threads: how many start, how they end, and jobs when none can be started."""

from __future__ import annotations

import threading
from functools import partial

import pytest

from orbitmq.client.aio.daemon_threads import DaemonThreads
from tests.leftovers import no_threads_since
from tests.leftovers import threads as threads_named
from tests.unit.client.scripts import refuse_to_start, run_script

NAME = "orbitmq-test"


def test_a_thread_is_started_only_while_there_are_fewer_than_needed() -> None:
    threads = DaemonThreads(NAME)
    done: list[int] = []

    for number in range(10):
        threads.submit(partial(done.append, number), threads_needed=min(number + 1, 2))

    assert {each.name for each in threads_named(NAME)} == {f"{NAME}-1", f"{NAME}-2"}
    threads.end()
    assert threads.join()
    assert sorted(done) == [*range(10)]
    no_threads_since(set(), NAME)


def test_a_busy_thread_is_joined_for_a_limited_time() -> None:
    threads = DaemonThreads(NAME)
    may_end = threading.Event()
    threads.submit(may_end.wait, threads_needed=1)
    threads.end()

    assert not threads.join(0.01)

    may_end.set()
    assert threads.join()


def test_running_threads_do_the_job_of_one_that_cannot_be_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads = DaemonThreads(NAME)
    names: list[str] = []
    threads.submit(lambda: None, threads_needed=1)
    monkeypatch.setattr(threading.Thread, "start", refuse_to_start)

    is_taken = threads.submit(
        lambda: names.append(threading.current_thread().name), threads_needed=2
    )

    assert is_taken
    threads.end()
    assert threads.join()
    assert names == [f"{NAME}-1"]


def test_a_job_is_refused_when_there_is_no_thread_and_none_can_be_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads = DaemonThreads(NAME)
    monkeypatch.setattr(threading.Thread, "start", refuse_to_start)

    assert not threads.submit(lambda: pytest.fail("it has no thread"), threads_needed=1)

    threads.end()
    assert threads.join()


def test_threads_work_after_the_main_thread_has_ended() -> None:
    printed = run_script(
        """
        import threading
        from orbitmq.client.aio.daemon_threads import DaemonThreads

        threads = DaemonThreads("orbitmq-test")
        threads.submit(lambda: None, threads_needed=1)

        def work():
            threading.main_thread().join()
            threads.submit(lambda: print("done"), threads_needed=1)
            threads.end()
            threads.join()

        threading.Thread(target=work).start()
        """
    )

    assert printed == "done\n"
