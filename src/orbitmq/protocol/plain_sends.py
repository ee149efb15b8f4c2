"""Plain sends: requests to store one message that ask for nothing special.

Nothing special: no batch, delay, timer or transaction, no reply, nothing that a broker sets
itself, and a unique id of letters and digits. A broker needs no more than the fields read here to
store such a message.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from orbitmq.model import property_names
from orbitmq.protocol.frame import Encoding
from orbitmq.protocol.hot_headers import HotHeader, PullFields, decode_hot_header

# Bits of the system flag that a plain message may have: those of compression.
PLAIN_FLAGS: Final = 0x701
_SPECIAL: Final = re.compile(
    rb"(?:^|\x02)(?:"
    + b"|".join(
        re.escape(name.encode())
        for name in (
            property_names.DELAY_LEVEL,
            property_names.HALF_MESSAGE,
            property_names.REPLY_TO_CLIENT,
            property_names.POP_CHECK_POINT,
            property_names.REGION,
            property_names.TRACE_ON,
            property_names.CLUSTER,
        )
    )
    + rb"|(?:TIMER_|INNER_|__RMQ)[^\x01]*)\x01"
)
_UNIQUE_IDS: Final = re.compile(rb"(?:^|\x02)UNIQ_KEY\x01([^\x02]*)")
_PLAIN_ID: Final = re.compile(rb"[0-9A-Za-z]{1,64}")
_WAIT: Final = re.compile(rb"(?:^|\x02)WAIT\x01([^\x02]*)")
_WAITS: Final[dict[tuple[bytes, ...], bool]] = {(): True, (b"true",): True, (b"false",): False}
_VALUE_END: Final = b"\x02"


class PlainSend(NamedTuple):
    """What a broker stores of a plain send, and what it answers with."""

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


def read_plain_send(chunk: bytes, start: int, end: int, marks: bytes) -> PlainSend | None:
    """Read the frame at `chunk[start:end]`; None when it is no plain send.

    `marks` are the properties that the broker adds.
    """
    decoded = decode_hot_header(chunk, start, end)
    return None if decoded is None else plain_send(decoded, chunk, end, marks)


def has_plain_properties(properties: bytes) -> bool:
    """Whether properties hold a unique id, and nothing special."""
    return (
        _unique_id(properties) is not None
        and waits_for_store(properties) is not None
        and _SPECIAL.search(properties) is None
    )


def waits_for_store(properties: bytes) -> bool | None:
    """Whether the answer waits until the message is safe; None when that is said in an odd way."""
    return _WAITS.get(tuple(_WAIT.findall(properties)))


def _unique_id(properties: bytes) -> bytes | None:
    ids = _UNIQUE_IDS.findall(properties)
    return ids[0] if len(ids) == 1 and _PLAIN_ID.fullmatch(ids[0]) else None


def with_marks(properties: bytes, marks: bytes) -> bytes:
    """Put the broker's properties behind those that were sent."""
    separator = b"" if properties.endswith(_VALUE_END) else _VALUE_END
    return properties + separator + marks


def plain_send(
    decoded: tuple[HotHeader, int, Encoding], chunk: bytes, end: int, marks: bytes
) -> PlainSend | None:
    """Make a plain send of a header that was read; None when it is none."""
    header, body_start, encoding = decoded
    asked = header.fields
    if (
        isinstance(asked, PullFields)
        or asked.is_batch
        or asked.system_flag & ~PLAIN_FLAGS
        or body_start == end
    ):
        return None
    properties = asked.properties.encode()
    unique_id, waits = _unique_id(properties), waits_for_store(properties)
    if unique_id is None or waits is None or _SPECIAL.search(properties) is not None:
        return None
    return PlainSend(
        asked.topic.encode(),
        asked.queue_id,
        asked.system_flag,
        asked.born_ms,
        asked.flag,
        asked.reconsume_times,
        with_marks(properties, marks),
        unique_id,
        waits,
        chunk[body_start:end],
        header.opaque,
        header.flag,
        encoding,
    )
