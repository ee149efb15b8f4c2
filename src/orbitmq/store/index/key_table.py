"""The layout of a file of the key index: a hash table from keys to the log.

File layout, big-endian:
    40  header     8 begin time, 8 end time, 8 begin offset, 8 end offset, 4 slots used,
                   4 next entry (the first entry has number 1)
    4 per slot     number of the newest entry whose hash falls into the slot, 0 for none
    20 per entry   4 key hash, 8 physical offset, 4 seconds since begin time, 4 previous entry

These are the plain forms; the compiled ones (`key_table_cython`) write the same bytes, and
`fast_forms` chooses.

Threads: one writer; readers any time, since an entry is complete before its slot points at it.
Crash: see `key_index`.
"""

from __future__ import annotations

import struct
from array import array
from typing import Final

from orbitmq.record.scan import KEY

HEADER: Final = struct.Struct(">qqqqii")
HEADER_BYTES: Final = HEADER.size
SLOT: Final = struct.Struct(">i")
SLOT_BYTES: Final = SLOT.size
ENTRY: Final = struct.Struct(">iqii")
ENTRY_BYTES: Final = ENTRY.size
_INT_MAX: Final = 2**31 - 1


def put_keys(
    view: memoryview, slots: int, entries_max: int, keys: bytes | bytearray, at: int
) -> int:
    """Add keys, packed as `KEY` and ordered by offset, from byte `at` on.

    Keys of messages below the end offset are known and skipped. Returns the position of the first
    key without room, or the end of the keys.
    """
    check_table(view, slots, entries_max, keys, at)
    begin_ms, end_ms, begin_offset, end_offset, slots_used, number = HEADER.unpack_from(view)
    number = next_entry(number, entries_max)
    # A message may have several keys with one offset, so an equal offset is not yet known.
    known = end_offset
    entries_at = HEADER_BYTES + slots * SLOT_BYTES
    while at < len(keys):
        hashed, offset, store_ms = KEY.unpack_from(keys, at)
        if offset >= known:
            if number >= entries_max:
                break
            slot_at = HEADER_BYTES + (hashed & _INT_MAX) % slots * SLOT_BYTES
            (previous,) = SLOT.unpack_from(view, slot_at)
            if previous <= 0 or previous >= number:
                previous = 0
                slots_used = min(slots_used + 1, _INT_MAX)
            seconds = (store_ms - begin_ms) // 1000 if begin_ms > 0 else 0
            seconds = min(max(seconds, 0), _INT_MAX)
            ENTRY.pack_into(
                view, entries_at + number * ENTRY_BYTES, hashed, offset, seconds, previous
            )
            SLOT.pack_into(view, slot_at, number)
            if number <= 1:
                begin_ms, begin_offset = store_ms, offset
            end_ms, end_offset = store_ms, offset
            number += 1
            HEADER.pack_into(
                view, 0, begin_ms, end_ms, begin_offset, end_offset, slots_used, number
            )
        at += KEY.size
    return at


def chain_entries(view: memoryview, slots: int, entries_max: int, end: int) -> int | None:
    """Rebuild all slots from the entries below number `end`; returns how many are used.

    Returns None, and changes nothing, if the entries are not valid.
    """
    check_table(view, slots, entries_max, b"", 0)
    if not 1 < end <= entries_max:
        return None
    table = array("i", bytes(slots * SLOT_BYTES))
    assert table.itemsize == SLOT_BYTES
    used, last_offset = 0, -1
    entries_at = HEADER_BYTES + slots * SLOT_BYTES
    entries = view[entries_at + ENTRY_BYTES : entries_at + end * ENTRY_BYTES]
    for number, (hashed, offset, seconds, previous) in enumerate(ENTRY.iter_unpack(entries), 1):
        slot = hashed % slots
        if hashed < 0 or offset < last_offset or seconds < 0 or previous != table[slot]:
            return None
        used += previous == 0
        table[slot] = number
        last_offset = offset
    table.byteswap()
    view[HEADER_BYTES:entries_at] = memoryview(table).cast("B")
    return used


def next_entry(written: int, entries_max: int) -> int:
    """The number of the next entry, from the number in the header."""
    # Compat: a fresh file says 0 and means 1.
    return min(max(written, 1), entries_max)


def check_table(
    view: memoryview, slots: int, entries_max: int, keys: bytes | bytearray, at: int
) -> None:
    """Raise ValueError unless the table fills the view, and `keys[at:]` are whole keys."""
    wanted = HEADER_BYTES + slots * SLOT_BYTES + entries_max * ENTRY_BYTES
    if slots < 1 or not 1 <= entries_max <= _INT_MAX or len(view) != wanted:
        raise ValueError(
            f"{len(view)} bytes are not a table of {slots} slots and {entries_max} entries"
        )
    if not 0 <= at <= len(keys) or (len(keys) - at) % KEY.size:
        raise ValueError(f"bytes {at} to {len(keys)} are not keys of {KEY.size} bytes")
