"""Callbacks of blocking clients: their threads, their arguments, and how they end."""

from __future__ import annotations

import logging
import sys
import threading
from concurrent.futures import Future

import pytest

from orbitmq.client.sync.callbacks import Callbacks
from tests.leftovers import no_threads_since
from tests.unit.client.scripts import refuse_to_start, run_script

WAIT_SECONDS = 60


def _no_threads() -> None:
    no_threads_since(set(), "orbitmq-test")


def test_success_is_called_in_a_thread_of_its_own() -> None:
    callbacks = Callbacks("orbitmq-test")
    seen: Future[tuple[int, str]] = Future()
    future: Future[int] = Future()
    callbacks.after(
        future, lambda value: seen.set_result((value, threading.current_thread().name)), None
    )

    future.set_result(7)

    value, thread = seen.result(WAIT_SECONDS)
    assert value == 7
    assert thread.startswith("orbitmq-test")
    callbacks.stop()
    _no_threads()


def test_failure_is_called_with_the_error() -> None:
    callbacks = Callbacks("orbitmq-test")
    seen: Future[BaseException] = Future()
    future: Future[int] = Future()
    callbacks.after(future, None, seen.set_result)

    future.set_exception(ValueError("why"))

    assert str(seen.result(WAIT_SECONDS)) == "why"
    callbacks.stop()


def test_stop_runs_pending_callbacks() -> None:
    callbacks = Callbacks("orbitmq-test")
    seen: list[int] = []
    for number in range(100):
        future: Future[int] = Future()
        callbacks.after(future, seen.append, None)
        future.set_result(number)

    callbacks.stop()

    assert sorted(seen) == [*range(100)]
    _no_threads()


def test_a_cancelled_future_calls_nothing() -> None:
    callbacks = Callbacks("orbitmq-test")
    called: list[object] = []
    future: Future[int] = Future()
    callbacks.after(future, called.append, called.append)

    future.cancel()
    callbacks.stop()

    assert called == []


def test_without_callbacks_no_thread_starts() -> None:
    callbacks = Callbacks("orbitmq-test")
    future: Future[int] = Future()
    callbacks.after(future, None, None)

    future.set_result(1)

    _no_threads()
    callbacks.stop()


def test_an_error_of_a_callback_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    callbacks = Callbacks("orbitmq-test")
    future: Future[int] = Future()

    def fail(_: int) -> None:
        raise ValueError("in the callback")

    callbacks.after(future, fail, None)
    future.set_result(1)
    callbacks.stop()

    (record,) = caplog.records
    assert record.getMessage() == "callback failed client=orbitmq-test"
    assert record.levelno == logging.ERROR


def test_a_failure_without_on_failure_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    callbacks = Callbacks("orbitmq-test")
    future: Future[int] = Future()

    callbacks.after(future, lambda _: None, None)
    future.set_exception(ValueError("why"))
    callbacks.stop()

    assert caplog.messages == ["send failed, and there is no on_failure reason=why"]


def test_a_callback_may_stop_its_client() -> None:
    callbacks = Callbacks("orbitmq-test")
    stopped: Future[None] = Future()
    threads: list[threading.Thread] = []

    def stop(_: int) -> None:
        threads.append(threading.current_thread())
        assert callbacks.in_callback
        callbacks.stop()
        stopped.set_result(None)

    future: Future[int] = Future()
    callbacks.after(future, stop, None)
    future.set_result(1)

    stopped.result(WAIT_SECONDS)
    for thread in threads:
        thread.join(WAIT_SECONDS)
    _no_threads()


def test_a_result_after_the_stop_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    callbacks = Callbacks("orbitmq-test")
    future: Future[int] = Future()
    callbacks.after(future, lambda _: None, None)
    callbacks.stop()

    future.set_result(1)

    assert caplog.messages == ["callback after the stop dropped client=orbitmq-test"]


def test_callbacks_still_run_while_threads_outlive_the_main_one() -> None:
    printed = run_script(
        """
        import threading
        from concurrent.futures import Future
        from orbitmq.client.sync.callbacks import Callbacks

        callbacks = Callbacks("orbitmq-test")

        def work():
            threading.main_thread().join()
            seen = Future()
            done = Future()
            callbacks.after(done, seen.set_result, None)
            done.set_result(7)
            print(seen.result(20), flush=True)
            callbacks.stop()

        callbacks.run(lambda: None).result(20)
        threading.Thread(target=work).start()
        """
    )

    assert printed == "7\n"


def test_pending_callbacks_are_called_at_exit() -> None:
    printed = run_script(
        """
        import threading
        from concurrent.futures import Future
        from orbitmq.client.sync.background_loop import acquire
        from orbitmq.client.sync.callbacks import Callbacks

        callbacks = Callbacks("orbitmq-test", threads=1)

        async def stop():
            done = Future()
            callbacks.after(done, print, None)
            done.set_result("sent at exit")

        def wait_for_exit():
            threading.main_thread().join()
            print("first")

        acquire().stop_at_exit(stop, afterwards=callbacks.stop)
        callbacks.run(wait_for_exit)
        callbacks.run(lambda: print("second"))
        """
    )

    assert printed.splitlines() == ["first", "second", "sent at exit"]


def test_a_callback_is_called_here_when_no_thread_can_be_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(threading.Thread, "start", refuse_to_start)
    callbacks = Callbacks("orbitmq-test")
    names: list[str] = []

    done = callbacks.run(lambda: names.append(threading.current_thread().name))

    assert done.done()
    assert names == [threading.current_thread().name]
    callbacks.stop()


def test_sys_exit_in_a_callback_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    callbacks = Callbacks("orbitmq-test", threads=1)
    seen: list[int] = []

    callbacks.run(lambda: sys.exit(1))
    callbacks.run(lambda: seen.append(1))
    callbacks.stop()

    assert seen == [1]
    assert caplog.messages == ["callback failed client=orbitmq-test"]


def test_a_callback_that_is_cancelled_in_time_is_not_called() -> None:
    callbacks = Callbacks("orbitmq-test", threads=1)
    may_end = threading.Event()
    called: list[str] = []
    first = callbacks.run(may_end.wait)

    second = callbacks.run(lambda: called.append("second"))
    assert second.cancel()
    callbacks.run(lambda: called.append("third"))
    may_end.set()
    callbacks.stop()

    assert first.done()
    assert called == ["third"]


def test_a_callback_that_hangs_is_not_waited_for_longer_than_allowed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    callbacks = Callbacks("orbitmq-test")
    may_end = threading.Event()
    callbacks.run(may_end.wait)

    callbacks.stop(wait_seconds=0.01)

    assert caplog.messages == ["callback did not return in time client=orbitmq-test"]
    may_end.set()
    _no_threads()
