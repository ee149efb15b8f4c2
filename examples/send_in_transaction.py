"""Sends a message that is delivered only if a change in a database is made."""

import sqlite3

from local_cluster import name_server
from orbitmq.client import (
    LitePullConsumer,
    Message,
    ReceivedMessage,
    TransactionProducer,
    TransactionState,
)

# Checks run in threads.
database = sqlite3.connect(":memory:", check_same_thread=False)
database.execute("CREATE TABLE paid (order_id TEXT, message_id TEXT)")


def was_paid(message: ReceivedMessage) -> TransactionState:
    """Answer the broker if it did not hear how the transaction ended."""
    query = "SELECT 1 FROM paid WHERE message_id = ?"
    found = database.execute(query, [message.message_id]).fetchone()
    return TransactionState.COMMIT if found else TransactionState.ROLLBACK


def pay(order: str, message_id: str) -> None:
    """Make the change; raises if it cannot be made."""
    if order == "7":
        raise ValueError("the card was refused")
    with database:
        database.execute("INSERT INTO paid VALUES (?, ?)", [order, message_id])


with (
    name_server() as namesrv,
    TransactionProducer("shop", on_check=was_paid, namesrv=namesrv) as producer,
):
    for order in ("7", "8"):
        try:
            with producer.transaction(Message("payments", f"order {order} is paid")) as sending:
                pay(order, sending.message_id)
        except ValueError as error:
            print(f"order {order}: {error}, rolled back")
    with LitePullConsumer("mailers", namesrv=namesrv, consume_from="first") as consumer:
        consumer.subscribe("payments")
        for message in consumer:
            print(f"delivered: {message.body.decode()}")
            break
