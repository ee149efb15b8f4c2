"""Messages that are written already."""

from __future__ import annotations

from orbitmq.client.core.sending.encoded_messages import EncodedMessages


def test_they_are_a_batch_unless_said_otherwise() -> None:
    messages = EncodedMessages("orders", b"batch")

    assert messages.is_batch
    assert (messages.properties, messages.flag) == ("", 0)
