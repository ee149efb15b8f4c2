"""The timer wheel takes memory for the slots in use only, and its file holds what it has."""

from __future__ import annotations

from pathlib import Path

import psutil

from orbitmq.store.timers.layout import SLOT, WHEEL_BYTES, Slot, slot_index
from orbitmq.store.timers.timer_wheel import FILE_NAME, TimerWheel

SECOND_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
MIB = 2**20


def private_bytes() -> int:
    return int(psutil.Process().memory_full_info().uss)


def test_slots_that_are_not_used_take_no_memory(tmp_path: Path) -> None:
    before = private_bytes()

    wheel = TimerWheel(tmp_path / FILE_NAME)
    for hour in range(24):
        wheel.put(SECOND_MS + hour * HOUR_MS, Slot(0, 0, 1))
        assert wheel.get(SECOND_MS + hour * HOUR_MS + HOUR_MS // 2) is None
    wheel.write()
    wheel.compare_with_file()

    assert private_bytes() - before < 4 * MIB
    wheel.close()


def test_a_slot_that_only_the_file_has_is_emptied_there(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    old = TimerWheel(path)
    old.put(SECOND_MS, Slot(0, 52, 2))
    old.put(SECOND_MS + HOUR_MS, Slot(104, 104, 1))
    old.write()
    old.close()

    wheel = TimerWheel(path)
    wheel.put(SECOND_MS, Slot(0, 52, 2))
    wheel.compare_with_file()
    wheel.write()
    wheel.close()

    content = path.read_bytes()
    kept, removed = (slot_index(at) * SLOT.size for at in (SECOND_MS, SECOND_MS + HOUR_MS))
    assert len(content) == WHEEL_BYTES
    assert content[kept : kept + SLOT.size] == SLOT.pack(SECOND_MS // 1000, 0, 52, 2, 0)
    assert content[removed : removed + SLOT.size] == bytes(SLOT.size)
