"""Sends a request through a topic, and waits for the reply of the consumer that gets it."""

from local_cluster import name_server
from orbitmq.client import Admin, Message, Producer, PushConsumer, ReceivedMessage, Reply


def price(message: ReceivedMessage) -> Reply:
    """Reply to a request."""
    return Reply(f"{message.body.decode()} costs 12.50")


with name_server() as namesrv:
    with Admin(namesrv=namesrv) as admin:
        admin.topics.create("price-requests")
    pricing = PushConsumer("pricing", on_message=price, consume_from="first", namesrv=namesrv)
    pricing.subscribe("price-requests")
    with pricing, Producer("shop", namesrv=namesrv) as producer:
        reply = producer.request(Message("price-requests", "a chair"), timeout_ms=10_000)
        print(reply.body.decode())
