"""Listeners: the functions that users write to consume messages, and their calls.

A listener takes one message or a list of messages. A plain function runs in a thread, an async one
on the loop. It returns None if the messages are done, or another result (`consume_results.py`); an
exception means "not done".
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from orbitmq.client.aio.push.consume_hooks import (
    CallOutcome,
    ConsumeContext,
    ConsumeHook,
    notify_after,
    notify_before,
)
from orbitmq.client.core.argument_checks import is_async_function
from orbitmq.client.core.consuming.consume_results import (
    SUCCESS,
    ConsumeResult,
    Reply,
    RetryLater,
    Success,
    Suspend,
    concurrent_result,
    ordered_result,
    reason_of,
)
from orbitmq.client.core.consuming.received_message import ReceivedMessage
from orbitmq.errors import ConsumeResultError, SettingsError

if TYPE_CHECKING:
    from orbitmq.client.aio.push.listener_failures import ListenerFailures
    from orbitmq.client.core.consuming.inflight_window import InflightWindow
    from orbitmq.clock import Clock
    from orbitmq.model.queues import MessageQueue

    Window = InflightWindow[ReceivedMessage]

log = logging.getLogger(__name__)

Returned = ConsumeResult | None
OnMessage = Callable[[ReceivedMessage], Returned | Awaitable[Returned]]
OnMessages = Callable[[list[ReceivedMessage]], Returned | Awaitable[Returned]]


@dataclass(frozen=True, slots=True)
class Listener:
    """A user's function: takes one message or a list, plain or async."""

    function: Callable[..., object]
    takes_lists: bool
    is_async: bool


def listener_of(on_message: OnMessage | None, on_messages: OnMessages | None) -> Listener:
    """Make the listener of the one function that was given."""
    if (on_message is None) == (on_messages is None):
        given = "both were" if on_message is not None else "none was"
        raise SettingsError(
            f"a push consumer takes one listener, but {given} given",
            hint="pass on_message=, called with one message, or on_messages=, with a list",
        )
    function = on_message if on_message is not None else on_messages
    if not callable(function):
        name = "on_message" if on_message is not None else "on_messages"
        raise SettingsError(
            f"{name} is {function!r}, which cannot be called", hint="pass a function"
        )
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise SettingsError(
            f"the listener {function!r} has a yield, so calling it would do nothing",
            hint="remove the yield; return None when the messages are done",
        )
    return Listener(function, on_messages is not None, is_async_function(function))


@dataclass(slots=True, eq=False)
class ListenerRun:
    """Batches of one queue for one worker, which stops at the first batch that is not done.

    Before each batch the worker checks that the window is not dropped, and calls `may_start` from
    its own thread. With `reports_end`, a last `Finished` without messages reports the end of the
    run, complete or not.
    """

    queue: MessageQueue
    window: Window
    batches: Sequence[list[ReceivedMessage]]
    may_start: Callable[[], bool] | None = None
    reports_end: bool = field(default=False, kw_only=True)


class Finished(NamedTuple):
    """The result of one batch of a run; without messages, the end of the run."""

    run: ListenerRun
    messages: list[ReceivedMessage]
    result: ConsumeResult
    spent_ms: float


@dataclass(slots=True, eq=False)
class Worker:
    """A thread or task that calls the listener, and its current call."""

    run: ListenerRun | None = None
    # Valid while `run` is set.
    messages: list[ReceivedMessage] = field(default_factory=list)
    # When the call started, which is when the previous one ended.
    started_ms: float = 0.0
    thread_id: int | None = None
    task: asyncio.Task[None] | None = None


OnFinished = Callable[[Sequence[Finished]], None]


class ListenerPool(ABC):
    """Calls a listener for many runs, some of them concurrently."""

    def __init__(self, call: ListenerCall, *, concurrency: int, on_finished: OnFinished) -> None:
        self._call = call
        self._concurrency = concurrency
        self._on_finished = on_finished
        self._loop = asyncio.get_running_loop()
        self._backlog: deque[ListenerRun] = deque()
        self._workers: list[Worker] = []
        # Whether finished batches are about to be collected: one call reports many batches.
        self._collect_scheduled = False
        self._stopping = False

    @property
    def concurrency(self) -> int:
        """How many calls may run concurrently."""
        return self._concurrency

    @concurrency.setter
    def concurrency(self, concurrency: int) -> None:
        self._concurrency = concurrency
        self._wake()

    @property
    def waiting(self) -> int:
        """How many runs have not started."""
        return len(self._backlog)

    @property
    def workers(self) -> Sequence[Worker]:
        """The active workers."""
        return self._workers

    def submit(self, runs: Iterable[ListenerRun]) -> None:
        """Queue runs for the workers."""
        if not self._stopping:
            self._backlog.extend(runs)
            self._wake()

    @abstractmethod
    async def stop(self, grace_ms: float) -> Sequence[Worker]:
        """Start no more calls, wait for the running ones; returns workers still in a call."""

    @abstractmethod
    def _wake(self) -> None:
        """Have workers take from the backlog soon."""

    def _report(self, finished: list[Finished]) -> None:
        if not finished:
            return
        try:
            self._on_finished(finished)
        except Exception:
            log.exception("cannot process finished messages")


class ReplySender(Protocol):
    """Sends what listeners reply; returns once that is done or impossible."""

    async def send(self, message: ReceivedMessage, reply: Reply) -> None:
        """Send the reply to a message."""

    def send_from_thread(self, message: ReceivedMessage, reply: Reply) -> None:
        """Send it from the thread of a plain listener, which waits."""


class ListenerCall:
    """Calls a listener with one batch, and checks its result."""

    def __init__(
        self,
        listener: Listener,
        *,
        group: str,
        ordered: bool,
        slow_ms: float,
        failures: ListenerFailures,
        hooks: Sequence[ConsumeHook],
        replies: ReplySender,
        clock: Clock,
    ) -> None:
        self.is_async = listener.is_async
        self.ordered = ordered
        self._function = listener.function
        self._takes_lists = listener.takes_lists
        self._read = ordered_result if ordered else concurrent_result
        self._group = group
        self._slow_ms = slow_ms
        self._failures = failures
        self._hooks = tuple(hooks)
        self._replies = replies
        self._clock = clock

    def __call__(
        self, run: ListenerRun, messages: list[ReceivedMessage], worker: Worker
    ) -> Finished:
        """Call a plain listener."""
        context = self._before(run, messages) if self._hooks else None
        try:
            returned = self._function(messages if self._takes_lists else messages[0])
            result = SUCCESS if returned is None else self._read(returned)
            if type(result) is Reply:
                # The message is done once its sender has the reply, or cannot get it.
                self._replies.send_from_thread(self._answerable(messages), result)
        except BaseException as error:  # noqa: BLE001 - whatever a listener raises
            return self._raised(run, messages, worker, context, error)
        if context is not None:
            self._after(context, worker, result)
        return self._finished(run, messages, worker, result)

    async def awaited(
        self, run: ListenerRun, messages: list[ReceivedMessage], worker: Worker
    ) -> Finished:
        """Call an async listener; only a cancellation of the calling task is raised."""
        context = self._before(run, messages) if self._hooks else None
        try:
            called = self._function(messages if self._takes_lists else messages[0])
            returned = await called  # type: ignore[misc]  # an async function gave it
            result = SUCCESS if returned is None else self._read(returned)
            if type(result) is Reply:
                await self._replies.send(self._answerable(messages), result)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # Something inside the listener was cancelled, not the listener itself.
            return self._raised(run, messages, worker, context, error)
        except (KeyboardInterrupt, SystemExit):
            # They end the loop, as from any other task.
            raise
        except BaseException as error:  # noqa: BLE001 - whatever a listener raises
            return self._raised(run, messages, worker, context, error)
        if context is not None:
            self._after(context, worker, result)
        return self._finished(run, messages, worker, result)

    def _answerable(self, messages: list[ReceivedMessage]) -> ReceivedMessage:
        if self._takes_lists:
            raise ConsumeResultError(
                "the listener returned a Reply to a list of messages",
                hint="pass the listener as on_message=, or reply with producer.reply(...)",
            )
        return messages[0]

    def now_ms(self) -> float:
        """The present time, on the clock of `Worker.started_ms`."""
        return self._clock.monotonic_ms()

    def _before(self, run: ListenerRun, messages: list[ReceivedMessage]) -> ConsumeContext:
        context = ConsumeContext(
            group=self._group, queue=run.queue, messages=messages, ordered=self.ordered
        )
        notify_before(self._hooks, context)
        return context

    def _after(
        self,
        context: ConsumeContext,
        worker: Worker,
        result: ConsumeResult,
        error: BaseException | None = None,
    ) -> None:
        context.result = result
        context.error = error
        context.spent_ms = self._clock.monotonic_ms() - worker.started_ms
        context.outcome = self._outcome(result, context.spent_ms, raised=error is not None)
        notify_after(self._hooks, context)

    def _raised(
        self,
        run: ListenerRun,
        messages: list[ReceivedMessage],
        worker: Worker,
        context: ConsumeContext | None,
        error: BaseException,
    ) -> Finished:
        self._failures.add(error, messages[0])
        reason = reason_of(error)
        result = Suspend(reason=reason) if self.ordered else RetryLater(reason=reason)
        if context is not None:
            self._after(context, worker, result, error)
        return self._finished(run, messages, worker, result)

    def _finished(
        self,
        run: ListenerRun,
        messages: list[ReceivedMessage],
        worker: Worker,
        result: ConsumeResult,
    ) -> Finished:
        # Perf: the end of a call is the start of the next, so the clock is read only once.
        started_ms, worker.started_ms = worker.started_ms, self._clock.monotonic_ms()
        return Finished(run, messages, result, worker.started_ms - started_ms)

    def _outcome(self, result: ConsumeResult, spent_ms: float, *, raised: bool) -> CallOutcome:
        if raised:
            return CallOutcome.RAISED
        if spent_ms >= self._slow_ms:
            return CallOutcome.TOO_SLOW
        return CallOutcome.SUCCESS if isinstance(result, Success) else CallOutcome.FAILED
