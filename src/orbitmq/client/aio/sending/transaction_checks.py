"""Checks of transactions: calls the check function of a producer, few at a time.

A broker that has no answer asks again. A check of a transaction that is already waiting, or in
progress, only replaces it: the function is called once, and its answer goes to the newest check.

Threads: one event loop; plain check functions run in threads of their own, so that one that hangs
delays nothing else in the program.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from orbitmq.client.aio.daemon_threads import DaemonThreads
from orbitmq.client.core.argument_checks import is_async_function
from orbitmq.client.core.consuming.received_message import ReceivedMessage
from orbitmq.client.core.sending.transaction_states import TransactionState, checked_state
from orbitmq.errors import StateError

if TYPE_CHECKING:
    from orbitmq.protocol.requests.transactions import CheckTransaction

log = logging.getLogger(__name__)

OnCheck = Callable[[ReceivedMessage], TransactionState | Awaitable[TransactionState]]

# Check functions that run at the same time; further checks wait.
_CHECKS_MAX: Final = 16
# Messages of waiting checks; brokers ask about further ones again.
_WAITING_BYTES_MAX: Final = 64 << 20


class Check(NamedTuple):
    """A broker's question how a transaction ended."""

    address: str
    header: CheckTransaction
    message: ReceivedMessage


class TransactionChecks:
    """Answers the checks of one producer."""

    def __init__(self, function: OnCheck, *, group: str, is_stopping: Callable[[], bool]) -> None:
        self._function: Callable[[ReceivedMessage], Any] = function
        self._group = group
        self._is_stopping = is_stopping
        self._turns = asyncio.Semaphore(_CHECKS_MAX)
        # The newest check of each transaction that is waiting or in progress.
        self._pending: dict[str, Check] = {}
        self._pending_bytes = 0
        self._calling: set[asyncio.Task[Any]] = set()
        self._threads = DaemonThreads(f"checks of {group}")
        # Also those whose caller was cancelled.
        self._in_threads = 0

    async def answer(
        self, check: Check, record_bytes: int
    ) -> tuple[Check, TransactionState] | None:
        """Call the function; returns the check to answer, and how the transaction ended.

        None if the function fails, the producer stops, or another check of it is answered.
        """
        key = check.message.message_id
        if key in self._pending:
            self._pending[key] = check
            return None
        if self._pending_bytes + record_bytes > _WAITING_BYTES_MAX:
            log.warning(
                "check of a transaction put off group=%s id=%s hint=on_check is slow: %d wait",
                self._group, key, len(self._pending),
            )  # fmt: skip
            return None
        self._pending[key] = check
        self._pending_bytes += record_bytes
        try:
            async with self._turns:
                state = None if self._is_stopping() else await self._state_of(check.message)
            return None if state is None else (self._pending[key], state)
        finally:
            del self._pending[key]
            self._pending_bytes -= record_bytes

    def cancel(self) -> None:
        """Leave the checks in progress to others."""
        for task in self._calling:
            task.cancel()

    def end(self) -> None:
        """End the threads once their functions return."""
        self._threads.end()

    async def _state_of(self, message: ReceivedMessage) -> TransactionState | None:
        task = asyncio.current_task()
        assert task is not None
        self._calling.add(task)
        try:
            return checked_state(await self._call(message), "on_check")
        except Exception:
            log.exception(
                "check of a transaction failed; the broker asks again id=%s", message.message_id
            )
            return None
        finally:
            self._calling.discard(task)

    async def _call(self, message: ReceivedMessage) -> object:
        if is_async_function(self._function):
            return await self._function(message)
        loop = asyncio.get_running_loop()
        done: asyncio.Future[object] = loop.create_future()
        call = partial(contextvars.copy_context().run, self._function, message)
        self._in_threads += 1
        if not self._threads.submit(
            partial(_call_in_thread, call, loop, partial(self._settle, done)),
            threads_needed=self._in_threads,
        ):
            self._in_threads -= 1
            raise StateError("no thread can be started", hint="the program is ending")
        return await done

    def _settle(
        self, done: asyncio.Future[object], result: object, error: BaseException | None
    ) -> None:
        self._in_threads -= 1
        if done.cancelled():
            return
        if error is None:
            done.set_result(result)
        else:
            done.set_exception(error)


def _call_in_thread(
    call: Callable[[], object],
    loop: asyncio.AbstractEventLoop,
    settle: Callable[[object, BaseException | None], None],
) -> None:
    result: object = None
    error: BaseException | None = None
    try:
        result = call()
    except BaseException as raised:  # noqa: BLE001  # it goes to the loop
        error = RuntimeError(f"{raised!r}") if isinstance(raised, StopIteration) else raised
    try:
        loop.call_soon_threadsafe(settle, result, error)
    except RuntimeError:
        # The loop is closed; nobody waits any more.
        return
