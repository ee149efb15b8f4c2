"""Bytes of RocketMQ's timer files: slots of the wheel and units of the log.

Slot of `timerwheel`, big-endian, 32 bytes, slot n at byte n * 32:
    8  time            second that the slot stands for; other times mean an empty slot
    8  first position  of a unit in the timer log
    8  last position   of a unit in the timer log, where the chain of units begins
    4  count           messages, less recalls
    4  magic           0

Unit of `timerlog`, big-endian, 52 bytes; units of one slot form a chain from the last to the first:
    4  size            52
    8  previous        position of the unit before in the same slot; -1 for none
    4  magic           1, plus 2 if the message goes to a later slot then, plus 4 for a recall
    8  written         time of writing, rounded down to a second
    4  delay           milliseconds from then to the slot
    8  physical offset of the message in the commit log
    4  record bytes    of the message
    4  topic hash      of the real topic
    8  reserved        milliseconds from the slot to the due time; 0 if unknown

The slot S holds messages that are due in (S, S + 1000].
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

PRECISION_MS: Final = 1000
SLOT: Final = struct.Struct(">qqqii")
UNIT: Final = struct.Struct(">iqiqiqiiq")
# Ends a file of the timer log: size of the rest, zero, magic.
FILLER: Final = struct.Struct(">iqI")
_DAY_SECONDS: Final = 86_400
# Compat: twice seven days, so that slots of the last week and of the next one do not meet.
SLOTS: Final = 2 * 7 * _DAY_SECONDS
WHEEL_BYTES: Final = SLOTS * SLOT.size
# How far ahead a slot may be; what is due later is put in this slot first, and on again then.
AHEAD_MS_MAX: Final = (7 * _DAY_SECONDS - 60) * PRECISION_MS
NOWHERE: Final = -1

KEEP: Final = 1
ROLL: Final = 2
RECALL: Final = 4
_MAGIC_MAX: Final = 0xF


@dataclass(frozen=True, slots=True)
class Slot:
    """The chain of one slot."""

    first: int
    last: int
    count: int


@dataclass(frozen=True, slots=True)
class Unit:
    """One message in the timer log."""

    position: int
    previous: int
    magic: int
    slot_ms: int
    physical_offset: int
    record_bytes: int
    # Due time within the slot, 1 to 1000; 0 if its writer did not say.
    due_in_slot_ms: int


def is_rolled(magic: int) -> bool:
    """Whether the message of a unit is due later than its slot says."""
    return bool(magic & ROLL)


def is_recall(magic: int) -> bool:
    """Whether a unit takes back a message of the same slot."""
    return bool(magic & RECALL) and not is_rolled(magic)


def slot_of(due_ms: int) -> int:
    """The slot of a due time."""
    # Compat: a whole second belongs to the slot before.
    return (due_ms - 1) // PRECISION_MS * PRECISION_MS


def floor(now_ms: int) -> int:
    """Round a time down to a slot."""
    return now_ms // PRECISION_MS * PRECISION_MS


def slot_index(slot_ms: int) -> int:
    """The number of a slot in the wheel."""
    return slot_ms // PRECISION_MS % SLOTS


def unit_at(content: bytes, at: int, position: int) -> Unit | None:
    """Decode a unit; None if these bytes cannot be one."""
    if at + UNIT.size > len(content):
        return None
    size, previous, magic, written_ms, delay_ms, physical_offset, record_bytes, _, due = (
        UNIT.unpack_from(content, at)
    )
    slot_ms = written_ms + delay_ms
    is_sound = (
        size == UNIT.size
        and 0 < magic <= _MAGIC_MAX
        and NOWHERE <= previous < position
        and slot_ms >= 0
        and slot_ms % PRECISION_MS == 0
        and physical_offset >= 0
        and record_bytes > 0
        and 0 <= due <= PRECISION_MS
    )
    if not is_sound:
        return None
    return Unit(position, previous, magic, slot_ms, physical_offset, record_bytes, due)
