"""Plain sends: requests to store messages that ask for nothing special.

Nothing special: no delay, timer or transaction, no reply, nothing that a broker sets itself, and a
unique id of letters and digits in each message. A broker needs no more than the fields here to
store them; the compiled reader (`fast_forms.read_send`) finds them in a frame.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from orbitmq.protocol.frame import Encoding

# A larger batch is left, so that others get their turn while it is read.
BATCH_MESSAGES_MAX: Final = 4000


class PlainSend(NamedTuple):
    """What a broker stores of one message, and what it answers with."""

    topic: bytes
    queue_id: int
    system_flag: int
    born_ms: int
    flag: int
    reconsume_times: int
    # As they were sent, with the broker's own behind them.
    properties: bytes
    unique_id: bytes
    # Whether the answer waits until the message is safe.
    waits: bool
    body: bytes
    opaque: int
    command_flag: int
    encoding: Encoding


class PlainBatch(NamedTuple):
    """Where the messages of a batch are, and what they have in common."""

    topic: bytes
    queue_id: int
    born_ms: int
    reconsume_times: int
    # Whether the answer waits until the messages are safe.
    waits: bool
    # Where in the chunk the messages begin, and how many they are.
    body_start: int
    message_count: int
    # What bodies and properties take together when they are stored.
    content_bytes: int
    opaque: int
    command_flag: int
    encoding: Encoding
