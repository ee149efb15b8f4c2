"""Consumes only messages that a condition in SQL92 holds for; the broker leaves out the rest."""

import threading

from local_cluster import name_server
from orbitmq.client import Message, Producer, PushConsumer, ReceivedMessage, by_sql

done = threading.Event()


def notice(message: ReceivedMessage) -> None:
    """Take a message that is worth it."""
    print(message.body.decode(), "for", message.properties["price"])
    done.set()


with name_server() as namesrv:
    with Producer("shop", namesrv=namesrv) as producer:
        for price, country in ((5, "FI"), (500, "DE"), (700, "SE")):
            properties = {"price": str(price), "country": country}
            producer.send(Message("orders", f"order from {country}", properties=properties))

    consumer = PushConsumer("auditors", on_message=notice, namesrv=namesrv, consume_from="first")
    consumer.subscribe("orders", by_sql("price > 100 AND country IN ('FI', 'SE')"))
    with consumer:
        done.wait(30)
