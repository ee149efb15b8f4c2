"""Consumes the messages of each queue in their order, one after the other."""

import threading

from local_cluster import name_server
from orbitmq.client import Message, Producer, PushConsumer, ReceivedMessage, queue_selectors

STEPS = ("created", "paid", "shipped")
all_here = threading.Semaphore(0)


def follow(message: ReceivedMessage) -> None:
    """Take the next step of an order; an exception would hold up its queue until it succeeds."""
    print(message.body.decode() + "\n", end="")
    all_here.release()


with name_server() as namesrv:
    with Producer("shop", namesrv=namesrv) as producer:
        for step in STEPS:
            for order in (7, 8):
                producer.send(
                    Message("order-steps", f"{order} {step}"),
                    selector=queue_selectors.by_hash,
                    argument=order,
                )

    consumer = PushConsumer(
        "warehouse", on_message=follow, ordered=True, namesrv=namesrv, consume_from="first"
    )
    consumer.subscribe("order-steps")
    with consumer:
        for _ in range(2 * len(STEPS)):
            all_here.acquire(timeout=30)
