"""Runs of units: many units of the timer log at once, in plain Python.

`fast_forms` chooses between this and the compiled form, which does the same.
"""

from __future__ import annotations

from mmap import mmap
from typing import NamedTuple

from orbitmq.store.timers.layout import (
    NOWHERE,
    PRECISION_MS,
    RECALL,
    SLOT,
    UNIT,
    WHEEL_BYTES,
    slot_index,
    unit_at,
)

# Time within the slot, physical offset, magic, record bytes.
ChainUnit = tuple[int, int, int, int]


class Loaded(NamedTuple):
    """What a run of units has put into the wheel."""

    # How many units there are up to the first bytes that are none.
    units: int
    # Of all of them, unless there are none.
    physical_offset_min: int
    slot_ms_max: int
    newest_physical_offset: int
    # Whether the next unit does not continue the chain of its slot.
    is_broken: bool


def load_units(
    content: bytes, position: int, wheel: bytearray | mmap, read_ms: int, log_start: int
) -> Loaded:
    """Put consecutive units, the first at a position of the log, into the slots of a wheel.

    Slots before `read_ms` stay as they are. The log begins at `log_start`; chains may have begun
    before it.
    """
    if len(wheel) != WHEEL_BYTES:
        raise ValueError(f"a wheel of {len(wheel)} bytes")
    units, offset_min, slot_max, newest = 0, 0, 0, 0
    for at in range(0, len(content) - UNIT.size + 1, UNIT.size):
        unit = unit_at(content, at, position + at)
        if unit is None:
            break
        if unit.slot_ms >= read_ms and not _put(wheel, unit.slot_ms, unit.previous, log_start,
                                                position + at, unit.magic):  # fmt: skip
            return Loaded(units, offset_min, slot_max, newest, is_broken=True)
        newest = unit.physical_offset
        offset_min = min(offset_min, newest) if units else newest
        slot_max = max(slot_max, unit.slot_ms)
        units += 1
    return Loaded(units, offset_min, slot_max, newest, is_broken=False)


def _put(
    wheel: bytearray | mmap, slot_ms: int, previous: int, log_start: int, position: int, magic: int
) -> bool:
    """Add a unit to the chain of its slot; False if it does not continue that."""
    at = slot_index(slot_ms) * SLOT.size
    second, first, last, count, _ = SLOT.unpack_from(wheel, at)
    is_empty = not second or second != slot_ms // PRECISION_MS
    if previous == NOWHERE or (is_empty and previous < log_start):
        first, count = position, 0
    elif is_empty or previous != last:
        return False
    count += -1 if magic & RECALL else 1
    SLOT.pack_into(wheel, at, slot_ms // PRECISION_MS, first, position, count, 0)
    return True


def chain_units(
    content: bytes, content_at: int, position: int, slot_ms: int
) -> tuple[list[ChainUnit], int]:
    """Read the units of a chain that are in `content`, from the one at a position of the log on.

    Returns them, newest first, and where the next one is: below `content_at`, or -1 at the end of
    the chain. It stays at the position of bytes that are no unit of the slot.
    """
    found: list[ChainUnit] = []
    while position >= content_at:
        unit = unit_at(content, position - content_at, position)
        if unit is None or unit.slot_ms != slot_ms:
            break
        found.append((unit.due_in_slot_ms, unit.physical_offset, unit.magic, unit.record_bytes))
        position = unit.previous
    return found, position
