"""Sends messages that nobody answers: for logs, where speed counts more than each one."""

from local_cluster import name_server
from orbitmq.client import Message, Producer

with name_server() as namesrv, Producer("shop", namesrv=namesrv) as producer:
    # The first send makes the topic; one-way messages to a missing one would be lost.
    producer.send(Message("clicks", "begin"))
    for number in range(3):
        producer.send_oneway(Message("clicks", f"click {number}"))
    print("on their way")
