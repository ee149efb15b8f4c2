"""The transaction producer on asyncio: messages wait for a commit.

    async with TransactionProducer("orders", on_check=was_paid, namesrv="127.0.0.1:9876") as producer:
        async with producer.transaction(Message("paid", body)) as transaction:
            await database.pay(order, transaction.message_id)

The message is stored, but not delivered. The end of the block commits it; an exception rolls it
back. If the broker hears of neither, because the producer died or the network failed, it asks any
producer of the group, and `on_check` says how the transaction ended.

Threads: one event loop, the one it was started on; plain functions of the user run in threads.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

from orbitmq.client.aio.instance.broker_calls import location_of
from orbitmq.client.aio.sending.producer import Producer
from orbitmq.client.aio.sending.send_hooks import CheckForbiddenHook, SendHook
from orbitmq.client.aio.sending.transaction_checks import Check, OnCheck, TransactionChecks
from orbitmq.client.core.argument_checks import is_async_function
from orbitmq.client.core.consuming.received_message import received_messages
from orbitmq.client.core.sending.send_results import SendResult, SendStatus
from orbitmq.client.core.sending.transaction_states import (
    TransactionResult,
    TransactionState,
    checked_state,
    half_message,
    outcome_of,
)
from orbitmq.client.keywords import ProducerKeywords
from orbitmq.errors import OrbitError, SettingsError, StateError, TransactionPendingError
from orbitmq.lifecycle import run_to_completion
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.transactions import EndTransaction

if TYPE_CHECKING:
    from types import TracebackType

    from orbitmq.client.aio.instance.client_instance import ClientInstance
    from orbitmq.client.core.sending.queue_selectors import Selector
    from orbitmq.clock import Clock
    from orbitmq.model.messages import Message
    from orbitmq.model.queues import MessageQueue
    from orbitmq.protocol.requests.transactions import CheckTransaction
    from orbitmq.transport.hooks import RpcHook

log = logging.getLogger(__name__)

OnTransaction = Callable[["Transaction", Any], TransactionState | Awaitable[TransactionState]]


class Transaction:
    """A message that is stored and waits for its end."""

    def __init__(self, producer: TransactionProducer, message: Message, half: SendResult) -> None:
        self._producer = producer
        self.message = message
        # Where its half message is stored.
        self.half = half
        self._state = TransactionState.COMMIT
        self._is_ended = False

    @property
    def message_id(self) -> str:
        """The id that consumers and `on_check` see; keep it with what the transaction changes."""
        return self.half.message_id

    def __repr__(self) -> str:
        """Show which transaction it is."""
        return f"<Transaction {self.message_id} of topic {self.message.topic!r}>"

    def roll_back_at_end(self) -> None:
        """Roll back at the end of the block, instead of committing."""
        self._check_open()
        self._state = TransactionState.ROLLBACK

    def leave_open(self) -> None:
        """Leave it open at the end of the block; the broker asks later how it ended."""
        self._check_open()
        self._state = TransactionState.UNKNOWN

    @property
    def state(self) -> TransactionState:
        """How the block ends the transaction, unless it raises."""
        return self._state

    @property
    def is_ended(self) -> bool:
        """Whether `end` was called, by the block or in it."""
        return self._is_ended

    def _check_open(self) -> None:
        if self._is_ended:
            raise StateError(
                f"transaction {self.message_id} has ended already", hint="end each one once"
            )

    async def end(self, state: TransactionState) -> TransactionResult:
        """End the transaction, and wait for the broker; continues if the caller is cancelled.

        A block does this at its end, unless it was done in the block.
        """
        self._check_open()
        if not isinstance(state, TransactionState):
            raise SettingsError(
                f"a transaction cannot end with {state!r:.60}",
                hint="pass TransactionState.COMMIT, ROLLBACK or UNKNOWN",
            )
        self._is_ended = True
        await run_to_completion(self._producer.end(self, state), name="end of a transaction")
        return TransactionResult(state=state, half=self.half)

    async def end_block(self, error: BaseException | None) -> None:
        """End it with its block, which raised an error or none, unless it was ended there."""
        if self._is_ended:
            return
        if error is not None:
            await self.end_failed(error)
        else:
            await self.end(self._state)

    async def end_failed(self, error: BaseException) -> None:
        """Roll back because of an error, which says so if the broker did not confirm it."""
        try:
            await self.end(TransactionState.ROLLBACK)
        except OrbitError as pending:
            error.add_note(str(pending))


class TransactionBlock:
    """An `async with` block that is a transaction."""

    def __init__(self, begin: Callable[[], Awaitable[Transaction]]) -> None:
        self._begin = begin
        self._transaction: Transaction | None = None

    async def __aenter__(self) -> Transaction:
        if self._transaction is not None:
            raise StateError("this transaction was begun before", hint="begin another one")
        self._transaction = await self._begin()
        return self._transaction

    async def __aexit__(
        self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None
    ) -> None:
        assert self._transaction is not None
        await self._transaction.end_block(error)


class TransactionProducer(Producer):
    """Sends messages in transactions, and others as every producer does."""

    def __init__(
        self,
        group: str,
        *,
        on_check: OnCheck,
        on_transaction: OnTransaction | None = None,
        hooks: Sequence[SendHook | CheckForbiddenHook] = (),
        rpc_hooks: Sequence[RpcHook] = (),
        clock: Clock | None = None,
        **options: Unpack[ProducerKeywords],
    ) -> None:
        """Make a producer.

        Args:
            group: the name of the application; any producer of the group may be asked how a
                transaction ended.
            on_check: called with a message whose transaction the broker heard no end of; returns
                how it ended. An async function runs on the loop, a plain one in a thread.
            on_transaction: the local transaction of `send_in_transaction`; called with the
                transaction and the argument, returns how it ended.
            hooks: run before and after each attempt of a send, and may forbid it.
            rpc_hooks: see every request and its reply.
            clock: the source of time, for tests.
            options: see `ProducerOptions`.
        """
        if not callable(on_check):
            raise SettingsError(
                f"on_check is {on_check!r}, which cannot be called",
                hint="pass a function that takes a message and returns a TransactionState: without "
                "it, nobody can say how a transaction ended once its producer is gone",
            )
        if on_transaction is not None and not callable(on_transaction):
            raise SettingsError(
                f"on_transaction is {on_transaction!r}, which cannot be called",
                hint="pass a function that takes a Transaction and an argument",
            )
        super().__init__(group, hooks=hooks, rpc_hooks=rpc_hooks, clock=clock, **options)
        self._on_transaction = on_transaction
        self._checks = TransactionChecks(
            on_check, group=self._group, is_stopping=lambda: self._state.stopping
        )
        # Ends and check functions in progress, for which a stop waits.
        self._reports = 0
        self._all_reported = asyncio.Event()

    # --- lifecycle ----------------------------------------------------------------------------

    async def stop(self) -> None:
        """Wait for the sends in flight, each until its deadline, then unregister.

        Ends and check functions in progress have `call_timeout_ms` to reach their brokers.
        """
        await super().stop()

    async def _close(self) -> None:
        try:
            # Once unregistered, it is not asked any more.
            await super()._close()
        finally:
            await self._wait_for_reports()
            self._checks.end()

    async def _wait_for_reports(self) -> None:
        try:
            async with asyncio.timeout(self._options.call_timeout_ms / 1000):
                while self._reports:
                    self._all_reported.clear()
                    await self._all_reported.wait()
        except TimeoutError:
            log.warning(
                "transactions left to a check count=%d group=%s reason=the producer is stopped",
                self._reports, self._group,
            )  # fmt: skip
            self._checks.cancel()

    @contextmanager
    def _reporting(self) -> Iterator[ClientInstance]:
        """Have a stop wait for the block; raises if the producer is not started."""
        instance = self._instance if self._state.stopping else self._running()
        if instance is None:
            raise StateError(f"{self._what} is stopped", hint="make a new one")
        self._reports += 1
        try:
            yield instance
        finally:
            self._reports -= 1
            if not self._reports:
                self._all_reported.set()

    # --- as a member of its client instance ---------------------------------------------------

    @property
    def answers_checks(self) -> bool:
        """Whether brokers may ask it about transactions."""
        return True

    # --- sending ------------------------------------------------------------------------------

    def transaction(
        self,
        message: Message,
        *,
        timeout_ms: float | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        argument: Any = None,
    ) -> TransactionBlock:
        """Begin a transaction with an `async with` block, whose end commits it.

        An exception in the block, or its cancellation, rolls it back. Arguments as for `send`.

        Raises:
            TransactionPendingError: the broker did not confirm the commit; it will ask `on_check`.
        """
        return TransactionBlock(
            partial(
                self.begin,
                message,
                timeout_ms=timeout_ms,
                queue=queue,
                selector=selector,
                argument=argument,
            )
        )

    async def send_in_transaction(
        self,
        message: Message,
        argument: Any = None,
        *,
        timeout_ms: float | None = None,
        queue: MessageQueue | None = None,
    ) -> TransactionResult:
        """Send a message, run `on_transaction`, and end the transaction as that says.

        If the function raises, the transaction stays open, and the broker asks `on_check`.
        """
        listener = self.listener
        transaction = await self.begin(message, timeout_ms=timeout_ms, queue=queue)
        state = await _call(listener, transaction, argument)
        return await transaction.end(checked_state(state, "on_transaction"))

    async def begin(
        self,
        message: Message,
        *,
        timeout_ms: float | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        argument: Any = None,
    ) -> Transaction:
        """Store a message that is not delivered before its transaction is committed."""
        half = await self.send(
            half_message(message, self._group),
            timeout_ms=timeout_ms,
            queue=queue,
            selector=selector,
            argument=argument,
        )
        transaction = Transaction(self, message, half)
        if half.status is not SendStatus.OK:
            # As Java's producer does: the half message may be lost, so nothing may depend on it.
            error = TransactionPendingError(
                f"transaction {half.message_id} was not begun: its message is {half.status.value}",
                hint="nothing was committed; try again",
            )
            await transaction.end_failed(error)
            raise error
        return transaction

    @property
    def listener(self) -> OnTransaction:
        """The local transaction; raises if there is none."""
        if self._on_transaction is None:
            raise SettingsError(
                "send_in_transaction needs a local transaction, and the producer has none",
                hint="pass on_transaction= to the producer, or use producer.transaction(message)",
            )
        return self._on_transaction

    # --- ending -------------------------------------------------------------------------------

    async def end(self, transaction: Transaction, state: TransactionState) -> None:
        """Tell the broker how a transaction ended, and wait until it has that."""
        half = transaction.half
        if self._send_tracing is not None and self._sender is not None:
            self._send_tracing.decided(
                transaction.message,
                half.message_id,
                state,
                transaction_id=half.transaction_id,
                address=self._sender.targets.address_of(half.queue.broker_name) or "",
                from_check=False,
            )
        if state is TransactionState.UNKNOWN:
            return
        header = EndTransaction(
            topic=half.queue.topic,
            producer_group=self._group,
            half_offset=Long(half.queue_offset),
            physical_offset=Long(location_of(half.offset_message_id)[1]),
            outcome=outcome_of(state),
            is_answer=False,
            message_id=half.message_id,
            transaction_id=half.transaction_id,
            broker_name=half.queue.broker_name,
        )
        try:
            with self._reporting() as instance:
                await instance.brokers.end_transaction(half.queue, header)
        except OrbitError as error:
            raise TransactionPendingError(
                f"the {state.name.lower()} of transaction {half.message_id} was not confirmed, its "
                f"outcome is pending a check: {error}",
                hint="the broker will ask a producer of the group, and on_check decides",
            ) from error

    async def check_transaction(self, address: str, check: CheckTransaction, record: bytes) -> None:
        """Have the check function say how a transaction ended, and report that to the broker."""
        (message,) = received_messages(
            record, check.broker_name or address, namespace=self._options.namespace
        )
        with self._reporting() as instance:
            answered = await self._checks.answer(Check(address, check, message), len(record))
            if answered is not None:
                await self._answer(instance, *answered)

    async def _answer(
        self,
        instance: ClientInstance,
        check: Check,
        state: TransactionState,
    ) -> None:
        address, header, message = check
        if self._send_tracing is not None:
            self._send_tracing.decided(
                message,
                message.message_id,
                state,
                transaction_id=header.transaction_id,
                address=address,
                from_check=True,
            )
        if state is TransactionState.UNKNOWN:
            return
        answer = EndTransaction(
            topic=message.stored_queue.topic,
            producer_group=self._group,
            half_offset=header.half_offset,
            physical_offset=header.physical_offset,
            outcome=outcome_of(state),
            is_answer=True,
            message_id=message.message_id,
            transaction_id=header.transaction_id,
            broker_name=header.broker_name,
        )
        try:
            await instance.rpc.call(address, answer, timeout_ms=self._options.call_timeout_ms)
        except OrbitError as error:
            log.warning(
                "end of a checked transaction not confirmed id=%s broker=%s reason=%s",
                message.message_id, address, error,
            )  # fmt: skip


async def _call(function: Callable[..., Any], *arguments: object) -> object:
    """Call a function of the user: an async one here, a plain one in a thread."""
    if is_async_function(function):
        return await function(*arguments)
    return await asyncio.to_thread(function, *arguments)
