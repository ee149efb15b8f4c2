"""Sends messages without waiting: functions are called with the results."""

from local_cluster import name_server
from orbitmq.client import Message, Producer, SendResult


def stored(result: SendResult) -> None:
    """Hear of a message that was stored; runs in a thread of the producer."""
    print("stored", result.message_id)


def failed(error: BaseException) -> None:
    """Hear of a message that no broker took."""
    print("failed", error)


# Leaving the block waits for the sends that are under way.
with name_server() as namesrv, Producer("shop", namesrv=namesrv) as producer:
    for number in range(3):
        message = Message("orders", f"order {number}")
        producer.send_async(message, on_success=stored, on_failure=failed)
