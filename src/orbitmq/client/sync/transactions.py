"""The blocking transaction producer: messages wait for a commit.

    with TransactionProducer("orders", on_check=was_paid, namesrv="127.0.0.1:9876") as producer:
        with producer.transaction(Message("paid", body)) as transaction:
            database.pay(order, transaction.message_id)

The check function runs in threads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from orbitmq.client.aio.sending.transactions import Transaction as AioTransaction
from orbitmq.client.aio.sending.transactions import TransactionProducer as AioTransactionProducer
from orbitmq.client.core.argument_checks import is_async_function
from orbitmq.client.core.sending.transaction_states import checked_state
from orbitmq.client.sync.blocking_client import BlockingCalls, waiting
from orbitmq.client.sync.producer import Producer
from orbitmq.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Unpack

    from orbitmq.client.aio.sending.send_hooks import CheckForbiddenHook, SendHook
    from orbitmq.client.aio.sending.transaction_checks import OnCheck
    from orbitmq.client.aio.sending.transactions import OnTransaction
    from orbitmq.client.core.sending.queue_selectors import Selector
    from orbitmq.client.core.sending.send_results import SendResult
    from orbitmq.client.core.sending.transaction_states import TransactionResult, TransactionState
    from orbitmq.client.keywords import ProducerKeywords
    from orbitmq.client.sync.background_loop import BackgroundLoop
    from orbitmq.clock import Clock
    from orbitmq.model.messages import Message
    from orbitmq.model.queues import MessageQueue
    from orbitmq.transport.hooks import RpcHook


class Transaction(BlockingCalls[AioTransaction]):
    """A message that is stored and waits for its end."""

    end = waiting(AioTransaction.end)

    def __init__(self, transaction: AioTransaction, running: Callable[[], BackgroundLoop]) -> None:
        """Wrap a transaction; `running` returns the loop of its producer."""
        self._client = transaction
        self._running = running  # type: ignore[method-assign]  # a method of the producer's

    def __repr__(self) -> str:
        """Show which transaction it is."""
        return repr(self._client)

    @property
    def message(self) -> Message:
        """What is delivered if it is committed."""
        return self._client.message

    @property
    def half(self) -> SendResult:
        """Where its half message is stored."""
        return self._client.half

    @property
    def message_id(self) -> str:
        """The id that consumers and `on_check` see; keep it with what the transaction changes."""
        return self._client.message_id

    @property
    def state(self) -> TransactionState:
        """How the block ends the transaction, unless it raises."""
        return self._client.state

    @property
    def is_ended(self) -> bool:
        """Whether `end` was called, by the block or in it."""
        return self._client.is_ended

    def roll_back_at_end(self) -> None:
        """Roll back at the end of the block, instead of committing."""
        self._client.roll_back_at_end()

    def leave_open(self) -> None:
        """Leave it open at the end of the block; the broker asks later how it ended."""
        self._client.leave_open()


class TransactionProducer(Producer):
    """Sends messages in transactions, and others as every producer does."""

    _client: AioTransactionProducer

    def __init__(
        self,
        group: str,
        *,
        on_check: OnCheck,
        on_transaction: Callable[[Transaction, Any], TransactionState] | None = None,
        hooks: Sequence[SendHook | CheckForbiddenHook] = (),
        rpc_hooks: Sequence[RpcHook] = (),
        clock: Clock | None = None,
        **options: Unpack[ProducerKeywords],
    ) -> None:
        """Make a producer; `start` connects it.

        Args:
            group: the name of the application; any producer of the group may be asked how a
                transaction ended.
            on_check: called in a thread with a message whose transaction the broker heard no end
                of; returns how it ended.
            on_transaction: the local transaction of `send_in_transaction`; called in the same
                thread with the transaction and the argument, returns how it ended.
            hooks: called before and after each attempt of a send, and may forbid it.
            rpc_hooks: called before and after each request to a server.
            clock: the source of time.
            options: see `ProducerOptions`.
        """
        if on_transaction is not None and is_async_function(on_transaction):
            raise SettingsError(
                "on_transaction is async, but this producer blocks",
                hint="pass a plain function, or use orbitmq.client.aio",
            )
        client = AioTransactionProducer(
            group,
            on_check=on_check,
            # Only `send_in_transaction` calls it, with a transaction that blocks.
            on_transaction=cast("OnTransaction | None", on_transaction),
            hooks=hooks,
            rpc_hooks=rpc_hooks,
            clock=clock,
            **options,
        )
        self._wrap(client, group)

    @contextmanager
    def transaction(
        self,
        message: Message,
        *,
        timeout_ms: float | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        argument: Any = None,
    ) -> Iterator[Transaction]:
        """Begin a transaction with a `with` block, whose end commits it.

        An exception in the block rolls it back. Arguments as for `send`.

        Raises:
            TransactionPendingError: the broker did not confirm the commit; it will ask `on_check`.
        """
        transaction = self._running().call(
            self._client.begin(
                message,
                timeout_ms=timeout_ms,
                queue=queue,
                selector=selector,
                argument=argument,
            )
        )
        try:
            yield Transaction(transaction, self._running)
        except BaseException as error:
            self._running().call(transaction.end_block(error))
            raise
        self._running().call(transaction.end_block(None))

    def send_in_transaction(
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
        listener: Callable[..., Any] = self._client.listener
        transaction = Transaction(
            self._running().call(self._client.begin(message, timeout_ms=timeout_ms, queue=queue)),
            self._running,
        )
        state = checked_state(listener(transaction, argument), "on_transaction")
        return transaction.end(state)
