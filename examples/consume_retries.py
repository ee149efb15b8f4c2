"""Fails on a message: it comes again later, longer each time, and at last to the dead letters."""

import threading

from local_cluster import name_server
from orbitmq.client import Message, Producer, PushConsumer, ReceivedMessage, RetryLater

done = threading.Event()


def charge(message: ReceivedMessage) -> RetryLater | None:
    """Fail at first; raising an exception does the same with a delay that the broker chooses."""
    if message.reconsume_times == 0:
        print("not now")
        return RetryLater(delay_level=1)
    print(f"{message.body.decode()}, tried again {message.reconsume_times} time")
    done.set()
    return None


with name_server() as namesrv:
    with Producer("shop", namesrv=namesrv) as producer:
        producer.send(Message("orders", "order 1"))

    consumer = PushConsumer("billing", on_message=charge, namesrv=namesrv, consume_from="first")
    consumer.subscribe("orders")
    with consumer:
        done.wait(30)
