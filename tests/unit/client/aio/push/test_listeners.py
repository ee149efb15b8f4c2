"""Listeners: which functions are accepted, and the result of one call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Any

import pytest

from orbitmq.client.aio.push.consume_hooks import CallOutcome, ConsumeContext
from orbitmq.client.aio.push.listener_tasks import ListenerTasks
from orbitmq.client.aio.push.listener_threads import ListenerThreads
from orbitmq.client.aio.push.listeners import Worker, listener_of
from orbitmq.client.aio.push.push_member import listener_pool
from orbitmq.client.core.consuming.consume_results import (
    RETRY_LATER,
    SUCCESS,
    SUSPEND,
    ConsumeResult,
    RetryLater,
)
from orbitmq.client.core.consuming.received_message import ReceivedMessage
from orbitmq.clock import ManualClock
from orbitmq.errors import SettingsError
from tests.unit.client.aio.received import call_of, received, run_of, several


def plain(_message: ReceivedMessage) -> None:
    """Do nothing."""


async def awaited(_message: ReceivedMessage) -> None:
    """Do nothing."""


class AsyncObject:
    async def __call__(self, _message: ReceivedMessage) -> None:
        """Do nothing."""


@pytest.mark.parametrize(
    ("function", "is_async"),
    [
        (plain, False),
        (lambda _message: None, False),
        (awaited, True),
        (partial(awaited), True),
        (AsyncObject(), True),
    ],
)
def test_async_and_plain_listeners_are_recognised(function: Any, *, is_async: bool) -> None:
    listener = listener_of(function, None)

    assert (listener.is_async, listener.takes_lists) == (is_async, False)
    assert listener_of(None, function).takes_lists


async def test_plain_listeners_run_in_threads_and_async_ones_in_tasks() -> None:
    made = [
        listener_pool(call_of(listener_of(function, None)), print, concurrency=3, name="billing")
        for function in (plain, awaited)
    ]

    assert [type(pool) for pool in made] == [ListenerThreads, ListenerTasks]
    assert [pool.concurrency for pool in made] == [3, 3]


def test_one_listener_is_needed() -> None:
    with pytest.raises(SettingsError, match=r"one listener, but none was given.*on_message="):
        listener_of(None, None)
    with pytest.raises(SettingsError, match="both were given"):
        listener_of(plain, lambda _messages: None)
    with pytest.raises(SettingsError, match="on_message is 7, which cannot be called"):
        listener_of(7, None)  # type: ignore[arg-type]  # the mistake under test


@pytest.mark.parametrize(
    ("returned", "result"),
    [(None, SUCCESS), (SUCCESS, SUCCESS), (RetryLater(delay_level=2), RetryLater(delay_level=2))],
)
def test_what_a_listener_returns_is_its_result(
    returned: ConsumeResult | None, result: ConsumeResult
) -> None:
    call = call_of(listener_of(lambda _message: returned, None))
    messages = [received(0)]

    finished = call(run_of(messages), messages, Worker())

    assert (finished.result, finished.messages) == (result, messages)


def test_a_listener_of_lists_gets_the_list() -> None:
    seen: list[int] = []
    call = call_of(listener_of(None, lambda messages: seen.append(len(messages))))

    call(run_of(several(0, 3)), several(0, 3), Worker())

    assert seen == [3]


@pytest.mark.parametrize("returned", [True, False, 7, "done", SUSPEND])
def test_an_unknown_result_is_not_success(returned: Any, caplog: pytest.LogCaptureFixture) -> None:
    call = call_of(listener_of(lambda _message: returned, None))

    assert call(run_of(several(0, 1)), several(0, 1), Worker()).result == RETRY_LATER
    assert "the listener returned" in caplog.text


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(1), KeyboardInterrupt()])
def test_any_exception_of_a_plain_listener_means_retry(error: BaseException) -> None:
    def failing(_message: ReceivedMessage) -> None:
        raise error

    assert (
        call_of(listener_of(failing, None))(run_of([]), several(0, 1), Worker()).result
        == RETRY_LATER
    )
    ordered = call_of(listener_of(failing, None), ordered=True)
    assert ordered(run_of([]), several(0, 1), Worker()).result == SUSPEND


async def test_an_async_listener_is_awaited() -> None:
    async def slow(_message: ReceivedMessage) -> ConsumeResult:
        await asyncio.wait({asyncio.ensure_future(awaited(received(1)))})
        return RETRY_LATER

    call = call_of(listener_of(slow, None))

    assert (await call.awaited(run_of([]), several(0, 1), Worker())).result == RETRY_LATER


async def test_a_cancellation_inside_an_async_listener_means_retry() -> None:
    async def cancelled_inside(_message: ReceivedMessage) -> None:
        raise asyncio.CancelledError

    call = call_of(listener_of(cancelled_inside, None))

    assert (await call.awaited(run_of([]), several(0, 1), Worker())).result == RETRY_LATER


async def test_the_cancellation_of_the_caller_is_raised() -> None:
    begun = asyncio.Event()

    async def endless(_message: ReceivedMessage) -> None:
        begun.set()
        await asyncio.Event().wait()

    call = call_of(listener_of(endless, None))
    task = asyncio.create_task(call.awaited(run_of([]), several(0, 1), Worker()))
    await begun.wait()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


class Hook:
    def __init__(self) -> None:
        self.heard: list[tuple[str, CallOutcome | None, float]] = []

    def before_consume(self, context: ConsumeContext) -> None:
        self.heard.append(("before", context.outcome, context.spent_ms))
        context.notes["begun"] = True

    def after_consume(self, context: ConsumeContext) -> None:
        assert context.notes["begun"]
        assert (context.group, context.ordered) == ("billing", False)
        self.heard.append(("after", context.outcome, context.spent_ms))


class BrokenHook:
    def before_consume(self, _context: ConsumeContext) -> None:
        raise RuntimeError("hook")

    def after_consume(self, _context: ConsumeContext) -> None:
        raise RuntimeError("hook")


async def test_hooks_get_each_call_and_its_outcome(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    hook = Hook()

    async def listener(message: ReceivedMessage) -> ConsumeResult | None:
        if message.body == b"fail":
            raise ValueError
        if message.body == b"slow":
            await clock.advance(1000)
        return RETRY_LATER if message.body == b"later" else None

    call = call_of(
        listener_of(listener, None), clock=clock, slow_ms=1000, hooks=(BrokenHook(), hook)
    )
    worker = Worker()
    worker.started_ms = clock.monotonic_ms()
    for body in (b"fine", b"fail", b"later", b"slow"):
        await call.awaited(run_of([]), [received(0, body)], worker)

    assert [outcome for when, outcome, _ in hook.heard if when == "after"] == [
        CallOutcome.SUCCESS,
        CallOutcome.RAISED,
        CallOutcome.FAILED,
        CallOutcome.TOO_SLOW,
    ]
    assert hook.heard[-1][2] == 1000
    assert caplog.text.count("consume hook failed") == 8


def test_a_listener_that_yields_is_refused() -> None:
    def plain(message: object) -> Iterator[object]:
        yield message

    async def awaited(message: object) -> AsyncIterator[object]:
        yield message

    for listener in (plain, awaited):
        with pytest.raises(SettingsError, match="has a yield"):
            listener_of(listener, None)  # type: ignore[arg-type]  # what the test is about
