"""Messages that are written already, as a send request holds them.

For whoever makes many messages at once, and faster than one by one; the producer looks at their
size and their topic only.
"""

from __future__ import annotations

import msgspec


class EncodedMessages(msgspec.Struct, frozen=True):
    """One message, or a batch; each has a unique id among its properties."""

    topic: str
    # The body of the message; of a batch: all messages, as `record.batch` writes them.
    body: bytes
    # The properties as one text; those of a batch stand in its body.
    properties: str = ""
    flag: int = 0
    is_batch: bool = True
