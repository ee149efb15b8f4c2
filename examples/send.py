"""Sends messages one by one, and shows where each was stored."""

from local_cluster import name_server
from orbitmq.client import Message, Producer

with name_server() as namesrv, Producer("shop", namesrv=namesrv) as producer:
    for number in range(3):
        message = Message(
            "orders",
            f"order {number}",
            tags="paid",
            keys=f"order-{number}",
            properties={"customer": "ann"},
        )
        result = producer.send(message, timeout_ms=3000)
        print(result.status.name, result.message_id, "queue", result.queue.queue_id)
