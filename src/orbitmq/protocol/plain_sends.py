"""Plain sends: requests to store messages that need no special treatment.

That is: no delay, timer or transaction, no property that a broker sets itself, and a unique
id of letters and digits in each message. A broker needs only the fields here to store them; the
compiled reader (`fast_forms.read_send`) extracts them from a frame.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from orbitmq.protocol.frame import Encoding

# A larger batch takes the ordinary form, so that reading it does not delay other connections.
BATCH_MESSAGES_MAX: Final = 4000


class PlainSend(NamedTuple):
    """What a broker needs to store one message and to answer."""

    topic: bytes
    queue_id: int
    system_flag: int
    born_ms: int
    flag: int
    reconsume_times: int
    # As they were sent, followed by the broker's own.
    properties: bytes
    unique_id: bytes
    # Whether the answer waits until the message is stored safely.
    waits: bool
    body: bytes
    opaque: int
    command_flag: int
    encoding: Encoding


class PlainBatch(NamedTuple):
    """Where the messages of a batch are, and what they share."""

    topic: bytes
    queue_id: int
    born_ms: int
    reconsume_times: int
    # Whether the answer waits until the messages are stored safely.
    waits: bool
    # Where in the chunk the messages begin, and their number.
    body_start: int
    message_count: int
    # The stored size of all bodies and properties together.
    content_bytes: int
    opaque: int
    command_flag: int
    encoding: Encoding
