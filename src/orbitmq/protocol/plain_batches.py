"""Plain batches: requests to store many messages that ask for nothing special.

Nothing special: what `plain_sends` says, for every message of the batch, and no compression. The
request is read in two steps, its header and then its messages, since a broker looks at the topic
in between.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from orbitmq.errors import ProtocolError
from orbitmq.protocol.frame import Encoding
from orbitmq.protocol.hot_headers import HotHeader, PullFields, decode_hot_header
from orbitmq.protocol.plain_sends import has_plain_properties, waits_for_store, with_marks
from orbitmq.record.batch import decode_batch
from orbitmq.record.layout import PROPERTIES_BYTES_MAX

# A larger batch is left, so that others get their turn while it is read.
MESSAGES_MAX: Final = 4000
# Body, properties, flag, system flag, born time, born host, reconsume times, prepared offset.
BatchEntry = tuple[bytes, bytes, int, int, int, bytes, int, int]


class PlainBatch(NamedTuple):
    """What the header of a plain batch says."""

    topic: bytes
    queue_id: int
    born_ms: int
    reconsume_times: int
    # Whether the answer waits until the messages are safe.
    waits: bool
    # Where in the chunk the messages begin.
    body_start: int
    opaque: int
    command_flag: int
    encoding: Encoding


def read_plain_batch(chunk: bytes, start: int, end: int) -> PlainBatch | None:
    """Read the header of the frame at `chunk[start:end]`; None when it is no plain batch's."""
    decoded = decode_hot_header(chunk, start, end)
    return None if decoded is None else plain_batch(decoded, end)


def plain_batch(decoded: tuple[HotHeader, int, Encoding], end: int) -> PlainBatch | None:
    """Make a plain batch of a header that was read; None when it is none."""
    header, body_start, encoding = decoded
    asked = header.fields
    if (
        isinstance(asked, PullFields)
        or not asked.is_batch
        or asked.system_flag != 0
        or body_start == end
    ):
        return None
    waits = waits_for_store(asked.properties.encode())
    if waits is None:
        return None
    return PlainBatch(
        asked.topic.encode(),
        asked.queue_id,
        asked.born_ms,
        asked.reconsume_times,
        waits,
        body_start,
        header.opaque,
        header.flag,
        encoding,
    )


def measure_messages(chunk: bytes, start: int, end: int, marks: bytes) -> tuple[int, int] | None:
    """Look at the messages at `chunk[start:end]`; None when they are too many, or one is special.

    `marks` are the properties that the broker adds to each. Returns how many messages there are,
    and how many bytes their bodies and properties take together when they are stored.
    """
    try:
        messages = decode_batch(chunk[start:end])
    except ProtocolError:
        return None
    if not 0 < len(messages) <= MESSAGES_MAX:
        return None
    whole_bytes = 0
    for _, body, sent in messages:
        properties_bytes = len(with_marks(sent, marks))
        if not has_plain_properties(sent) or 0 in sent or properties_bytes > PROPERTIES_BYTES_MAX:
            return None
        whole_bytes += len(body) + properties_bytes
    return len(messages), whole_bytes


def read_entries(  # Perf: plain arguments, as the compiled form has
    chunk: bytes,
    start: int,
    end: int,
    marks: bytes,
    born_ms: int,
    born_host: bytes,
    reconsume_times: int,
) -> list[BatchEntry] | None:
    """Read the messages at `chunk[start:end]`; None when they are too many, or one is special.

    `marks` are the properties that the broker adds to each.
    """
    try:
        messages = decode_batch(chunk[start:end])
    except ProtocolError:
        return None
    if not 0 < len(messages) <= MESSAGES_MAX or not all(
        has_plain_properties(each.properties) for each in messages
    ):
        return None
    return [
        (body, with_marks(properties, marks), flag, 0, born_ms, born_host, reconsume_times, 0)
        for flag, body, properties in messages
    ]
