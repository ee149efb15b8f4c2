"""Work for a process pool; a module, so that a spawned process can import it."""

from __future__ import annotations

from orbitmq.client import Message, Producer


def send_one(namesrv: str, message: Message) -> str:
    """Make a producer, send with it, stop it."""
    with Producer(namesrv=namesrv) as producer:
        return producer.send(message).message_id
