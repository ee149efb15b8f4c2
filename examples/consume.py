"""Consumes messages: a function is called with each, in several threads at once."""

import threading

from local_cluster import name_server
from orbitmq.client import Message, Producer, PushConsumer, ReceivedMessage

all_here = threading.Semaphore(0)


def charge(message: ReceivedMessage) -> None:
    """Take a message; coming to the end means that it is done."""
    print(f"{message.body.decode()} {message.keys[0]}\n", end="")
    all_here.release()


with name_server() as namesrv:
    with Producer("shop", namesrv=namesrv) as producer:
        for number in range(5):
            producer.send(Message("orders", f"order {number}", tags="paid", keys=f"key-{number}"))

    consumer = PushConsumer("billing", on_message=charge, namesrv=namesrv, consume_from="first")
    consumer.subscribe("orders", "paid || shipped")
    with consumer:
        for _ in range(5):
            all_here.acquire(timeout=30)
