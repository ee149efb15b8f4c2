"""Sends messages that are delivered at a time of their own, and takes one of them back."""

import time
from datetime import timedelta

from local_cluster import name_server
from orbitmq.client import LitePullConsumer, Message, Producer

with name_server() as namesrv, Producer("shop", namesrv=namesrv) as producer:
    producer.send(Message("reminders", "pay your order", delay=timedelta(seconds=2)))
    begun = time.monotonic()
    later = producer.send(Message("reminders", "last warning", delay=timedelta(days=1)))
    print(f"taken back: {producer.recall(later.recall_handle) == later.message_id}")
    with LitePullConsumer("mailers", namesrv=namesrv, consume_from="first") as consumer:
        consumer.subscribe("reminders")
        for message in consumer:
            print(f"{message.body.decode()!r} after {time.monotonic() - begun:.1f} s")
            break
