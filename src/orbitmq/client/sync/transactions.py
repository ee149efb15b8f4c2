"""The blocking transaction producer: messages wait for a commit.

    with TransactionProducer("orders", on_check=was_paid, namesrv="127.0.0.1:9876") as producer:
        with producer.transaction(Message("paid", body)) as transaction:
            database.pay(order, transaction.message_id)

The check function runs in threads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from orbitmq.client.aio.sending.transactions import Transaction, checked_state
from orbitmq.client.aio.sending.transactions import TransactionProducer as AioTransactionProducer
from orbitmq.client.core.argument_checks import is_async_function
from orbitmq.client.sync.producer import Producer
from orbitmq.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Unpack

    from orbitmq.client.aio.sending.send_hooks import CheckForbiddenHook, SendHook
    from orbitmq.client.aio.sending.transactions import OnCheck
    from orbitmq.client.core.sending.queue_selectors import Selector
    from orbitmq.client.core.sending.transaction_states import TransactionResult, TransactionState
    from orbitmq.client.keywords import ProducerKeywords
    from orbitmq.clock import Clock
    from orbitmq.model.messages import Message
    from orbitmq.model.queues import MessageQueue
    from orbitmq.transport.hooks import RpcHook


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
            on_transaction=on_transaction,
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
            yield transaction
        except BaseException as error:
            self._running().call(transaction.end_failed(error))
            raise
        self._running().call(transaction.end(transaction.state))

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
        listener = self._client.listener
        transaction = self._running().call(
            self._client.begin(message, timeout_ms=timeout_ms, queue=queue)
        )
        state = checked_state(listener(transaction, argument), "on_transaction")
        return self._running().call(transaction.end(state))
