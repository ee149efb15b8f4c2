"""Walking over consecutive records, for what queues and index need of each.

These are the plain forms; the compiled ones give the same results. A walk ends at the end of its
bytes, at a blank record, or at the first bytes that are not a record.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from orbitmq.java_hash import java_hash
from orbitmq.model import property_names
from orbitmq.record.decode import Buffer, FieldPositions, Found, Verdict, locate, locate_at
from orbitmq.record.layout import LOST_FLAG, ROLLED_BACK, TRANSACTION_MASK, is_queued
from orbitmq.record.properties import find_property

ENTRY: Final = struct.Struct(">qiq")
KEY: Final = struct.Struct(">iqq")
_HEAD: Final = struct.Struct(">IIIiiqqi")
_LONG: Final = struct.Struct(">q")
_INT_MAX: Final = 2**31 - 1
_LONG_MAX: Final = 2**63 - 1
_LONG_SPAN: Final = 2**64
DELAY_TOPIC: Final = b"SCHEDULE_TOPIC_XXXX"
_UNIQUE_ID: Final = property_names.UNIQUE_ID.encode()
_KEYS: Final = property_names.KEYS.encode()
_TAGS: Final = property_names.TAGS.encode()
_DELAY_LEVEL: Final = property_names.DELAY_LEVEL.encode()
# Tags are few and short; longer ones are not cached, so that hostile ones take no memory.
_CACHED_TAG_BYTES_MAX: Final = 64


@dataclass(slots=True)
class EntryRun:
    """Entries of one queue with consecutive numbers."""

    first: int
    entries: bytearray


@dataclass(slots=True)
class Walk:
    """The result of a walk."""

    position: int  # where it stopped
    stopped_by: Found
    records: int = 0
    first_store_ms: int = 0
    last_store_ms: int = 0
    runs: dict[tuple[bytes, int], list[EntryRun]] = field(default_factory=dict)
    # For each key of an indexed record: key hash, physical offset, store time, packed as `KEY`.
    keys: bytearray = field(default_factory=bytearray)
    newest_store_ms: int = 0


def walk(  # noqa: PLR0913  # flags by name
    buffer: Buffer,
    start: int,
    end: int,
    base_offset: int,
    *,
    check_body: bool,
    delay_levels_ms: tuple[int, ...],
    with_keys: bool,
    check_places: bool = False,
    check_texts: bool = False,
) -> Walk:
    """Walk over `buffer[start:end]`, whose byte 0 has the physical offset `base_offset`.

    With `check_places` it ends at a record that was written for another offset; with
    `check_texts` also at one that lost a page (see `locate_at`).
    """
    check_span(buffer, start, end, base_offset)
    result = Walk(start, Found(Verdict.NOTHING))
    at = start
    while at < end:
        fields = (
            locate_at(
                buffer, at, end, base_offset + at, check_body=check_body, check_texts=check_texts
            )
            if check_places
            else locate(buffer, at, end, check_body=check_body)
        )
        if isinstance(fields, Found):
            result.stopped_by = fields
            break
        store_ms = _take(
            buffer, fields, base_offset + at, result, delay_levels_ms, with_keys=with_keys
        )
        result.records += 1
        result.first_store_ms = result.first_store_ms or store_ms
        result.last_store_ms = store_ms
        result.newest_store_ms = max(result.newest_store_ms, store_ms)
        at = fields.end
    result.position = at
    return result


def whole_records(
    buffer: Buffer, start: int, end: int, base_offset: int, *, check_body: bool
) -> tuple[int, int, Found]:
    """Find where the whole records of `buffer[start:end]` end, and what is there instead.

    A record counts if it was written for its offset and, with `check_body`, its body matches its
    checksum. The second value is where the last of them begins, -1 if there is none.
    """
    check_span(buffer, start, end, base_offset)
    at, last = start, -1
    while at < end:
        fields = locate_at(
            buffer, at, end, base_offset + at, check_body=check_body, check_texts=False
        )
        if isinstance(fields, Found):
            return at, last, fields
        last, at = at, fields.end
    return at, last, Found(Verdict.NOTHING)


def is_sound(record: bytes, physical_offset: int, topic: bytes | None, queue_id: int) -> bool:
    """Whether a record is whole and matches its queue entry: offset, topic, queue and size.

    A `topic` of None means a queue whose entries point to records of other topics.
    """
    fields = locate_at(record, 0, len(record), physical_offset, check_body=True, check_texts=False)
    if isinstance(fields, Found) or fields.end != len(record):
        return False
    return topic is None or (
        record[fields.topic_at : fields.topic_end] == topic
        and _HEAD.unpack_from(record)[3] == queue_id
    )


def sound_records(  # noqa: PLR0913, PLR0917  # plain arguments, like the compiled form
    entries: bytes,
    content: Buffer,
    first_offset: int,
    low: int,
    high: int,
    topic: bytes | None,
    queue_id: int,
    number: int,
    count_max: int,
    bytes_max: int,
    tag_filter: Callable[[int], bool] | None,
) -> tuple[list[bytes], int, int]:
    """Copy the records that queue entries point to, up to the first that the caller must judge.

    `content` holds the log from `first_offset` on; only bytes between `low` and `high` are read.
    `number` is the number of the first entry in its queue. It ends before the first entry whose
    record is elsewhere, is not sound, has another number or the flag of stand-ins, and before it would exceed the limits, though never before the first record.
    Returns the records, their bytes, and how many entries it passed, filtered ones included.
    """
    records: list[bytes] = []
    taken_bytes = passed = 0
    low = max(low, first_offset)
    high = min(high, first_offset + len(content)) if first_offset >= 0 else low
    for physical_offset, record_bytes, tag_hash in ENTRY.iter_unpack(entries):
        if (
            physical_offset < low
            or record_bytes <= 0
            or physical_offset + record_bytes > high
            or (records and (len(records) >= count_max or taken_bytes + record_bytes > bytes_max))
        ):
            break
        if tag_filter is None or tag_filter(tag_hash):
            at = physical_offset - first_offset
            record = bytes(content[at : at + record_bytes])
            if not is_sound(record, physical_offset, topic, queue_id):
                break
            _, _, _, _, flag, queue_offset, _, _ = _HEAD.unpack_from(record)
            if flag == LOST_FLAG or (topic is not None and queue_offset != number + passed):
                break
            records.append(record)
            taken_bytes += record_bytes
        passed += 1
    return records, taken_bytes, passed


def check_span(buffer: Buffer, start: int, end: int, base_offset: int) -> None:
    """Raise ValueError unless `buffer[start:end]` can be walked over."""
    if start < 0 or end > len(buffer):
        raise ValueError(f"bytes {start} to {end} are not in a buffer of {len(buffer)}")
    if base_offset < 0 or base_offset + end > _LONG_MAX:
        raise ValueError(f"physical offset {base_offset} plus {end} bytes is out of range")


def _take(
    buffer: Buffer,
    fields: FieldPositions,
    physical_offset: int,
    result: Walk,
    delay_levels_ms: tuple[int, ...],
    *,
    with_keys: bool,
) -> int:
    """Collect the queue entry and the keys of one record; return its store time."""
    size, _, _, queue_id, _, queue_offset, _, system_flag = _HEAD.unpack_from(buffer, fields.at)
    (store_ms,) = _LONG.unpack_from(buffer, fields.store_ms_at)
    topic = bytes(buffer[fields.topic_at : fields.topic_end])
    properties = bytes(buffer[fields.properties_at : fields.end])
    if is_queued(system_flag):
        tag_code = record_tag_code(topic, properties, store_ms, delay_levels_ms)
        runs = result.runs.setdefault((topic, queue_id), [])
        if not runs or runs[-1].first + len(runs[-1].entries) // ENTRY.size != queue_offset:
            runs.append(EntryRun(queue_offset, bytearray()))
        runs[-1].entries += ENTRY.pack(physical_offset, size, tag_code)
    if with_keys and system_flag & TRANSACTION_MASK != ROLLED_BACK:
        for key in message_keys(properties):
            result.keys += KEY.pack(hash_key(topic, key), physical_offset, store_ms)
    return int(store_ms)


def message_keys(properties: bytes) -> list[bytes]:
    """The keys of a message in the index: its unique id, then each word of its keys."""
    keys: list[bytes] = []
    unique = find_property(properties, _UNIQUE_ID)
    if unique:
        keys.append(unique)
    words = find_property(properties, _KEYS)
    if words:
        keys += [word for word in words.split(b" ") if word]
    return keys


def hash_key(topic: bytes, key: bytes) -> int:
    """Hash a key of a topic for the index; never negative."""
    hashed = abs(java_hash((topic + b"#" + key).decode(errors="replace")))
    return hashed if hashed <= _INT_MAX else 0


def hash_tag(tag: bytes) -> int:
    """Hash a tag for its queue entry."""
    if len(tag) <= _CACHED_TAG_BYTES_MAX:
        return _hash_short_tag(tag)
    return java_hash(tag.decode(errors="replace"))


@lru_cache(maxsize=4096)
def _hash_short_tag(tag: bytes) -> int:
    return java_hash(tag.decode(errors="replace"))


def record_tag_code(
    topic: bytes, properties: bytes, store_ms: int, delay_levels_ms: tuple[int, ...]
) -> int:
    """The tag code of a queue entry: the tag's hash, or the due time of a delayed message."""
    if topic == DELAY_TOPIC and (level := find_property(properties, _DELAY_LEVEL)):
        number = min(_level_number(level), len(delay_levels_ms))
        if number > 0:
            # Compat: Java's sum wraps; a damaged store time must not stop the walk.
            due_ms = store_ms + delay_levels_ms[number - 1]
            return due_ms if due_ms <= _LONG_MAX else due_ms - _LONG_SPAN
    tag = find_property(properties, _TAGS)
    return hash_tag(tag) if tag else 0


def _level_number(level: bytes) -> int:
    """Parse a delay level; 0 if it is not a number, for which Java would refuse the record."""
    digits = level.lstrip(b"0")
    if not digits.isdigit():
        return 0
    return int(digits) if len(digits) < 10 else _INT_MAX
