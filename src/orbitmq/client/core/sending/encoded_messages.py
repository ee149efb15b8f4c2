"""Messages that are encoded already, as a send request carries them.

For callers that encode many messages at once, which is faster than one by one. The producer checks
only their size and topic.
"""

from __future__ import annotations

import msgspec


class EncodedMessages(msgspec.Struct, frozen=True):
    """One message, or a batch; each has a unique id among its properties."""

    topic: str
    # The body of the message; for a batch, all messages as `record.batch` encodes them.
    body: bytes
    # The properties as one text; those of a batch are in its body.
    properties: str = ""
    flag: int = 0
    is_batch: bool = True
