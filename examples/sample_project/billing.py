"""A service of a sample project: makes a bill of every order that is paid."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from orbitmq.client import Message, Producer, PushConsumer, ReceivedMessage
from orbitmq.clock import Clock


class Billing:
    """Consumes `orders` with the tag paid, and produces `bills`."""

    def __init__(self, namesrv: str, *, clock: Clock | None = None) -> None:
        self._producer = Producer("billing", namesrv=namesrv, clock=clock)
        self._consumer = PushConsumer(
            "billing",
            on_message=self._bill,
            namesrv=namesrv,
            consume_from="first",
            clock=clock,
        )
        self._consumer.subscribe("orders", "paid")

    def __enter__(self) -> Self:
        self._producer.start()
        self._consumer.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._consumer.stop()
        self._producer.stop()

    def _bill(self, order: ReceivedMessage) -> None:
        if not order.body:
            return
        # An order that cannot be billed is tried again: the exception says so.
        amount = int(order.body)
        self._producer.send(Message("bills", f"pay {amount}", keys=order.keys))
