"""Sends a message that consumers get only after a delay, by level: 1 is 1 s, 2 is 5 s, 3 is 10 s."""

import time

from local_cluster import name_server
from orbitmq.client import LitePullConsumer, Message, Producer

with name_server() as namesrv, Producer("shop", namesrv=namesrv) as producer:
    producer.send(Message("reminders", "pay your order", delay_level=1))
    begun = time.monotonic()
    with LitePullConsumer("mailers", namesrv=namesrv, consume_from="first") as consumer:
        consumer.subscribe("reminders")
        for message in consumer:
            print(f"{message.body.decode()!r} after {time.monotonic() - begun:.1f} s")
            break
