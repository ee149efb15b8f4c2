"""Chains of timers: wheel and timer log together, and the records they need.

Threads: one at a time, except `oldest_physical_offset`.
Crash: `load` builds the wheel from the timer log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from orbitmq.errors import StoreDamagedError
from orbitmq.store.timers.fast_forms import load_units
from orbitmq.store.timers.layout import AHEAD_MS_MAX, NOWHERE, RECALL, UNIT, Slot, floor
from orbitmq.store.timers.timer_log import FOLDER, TimerLog
from orbitmq.store.timers.timer_wheel import FILE_NAME, TimerWheel
from orbitmq.store.timers.unit_runs import ChainUnit

if TYPE_CHECKING:
    from pathlib import Path

    from orbitmq.clock import Clock
    from orbitmq.disk import FileModes

# Units whose lowest physical offset and latest slot are remembered together.
_BLOCK_UNITS: Final = 4096


@dataclass(slots=True)
class _Block:
    """Units that follow each other in the timer log."""

    position: int
    units: int
    physical_offset_min: int
    slot_ms_max: int


class TimerChains:
    """The units of each slot."""

    def __init__(self, root: Path, *, file_bytes: int, modes: FileModes, clock: Clock) -> None:
        self._clock = clock
        self._wheel = TimerWheel(root / FILE_NAME, modes)
        self._log = TimerLog(root / FOLDER, file_bytes, modes)
        self._blocks: deque[_Block] = deque()

    @property
    def end(self) -> int:
        """The end of the timer log."""
        return self._log.end

    # --- opening and saving -------------------------------------------------------------------

    def load(self, read_ms: int, saved_end: int | None) -> int | None:
        """Build the wheel from the units up to the saved end, or up to the last good one.

        Returns the physical offset in the last unit. Slots before `read_ms` stay empty. Raises
        StoreDamagedError if units are missing or damaged.
        """
        self._log.check_files()
        log_start = end = self._log.starts[0] if self._log.starts else 0
        newest: int | None = None
        for position, content in self._log.runs(_BLOCK_UNITS):
            if saved_end is not None and position >= saved_end:
                break
            wanted = content if saved_end is None else content[: saved_end - position]
            loaded = load_units(wanted, position, self._wheel.slots, read_ms, log_start)
            if loaded.is_broken:
                at = position + loaded.units * UNIT.size
                raise StoreDamagedError(f"the unit at {at} of the timer log is damaged")
            if not loaded.units:
                break
            self._blocks.append(
                _Block(position, loaded.units, loaded.physical_offset_min, loaded.slot_ms_max)
            )
            newest = loaded.newest_physical_offset
            end = position + loaded.units * UNIT.size
        if saved_end is not None and end != saved_end:
            raise StoreDamagedError(
                f"the timer log ends at {end}, but {saved_end} bytes were saved"
            )
        self._log.cut(end)
        self._wheel.compare_with_file()
        return newest

    def clear(self) -> None:
        """Drop everything, to begin again."""
        self._log.cut(0)
        self._wheel.clear()
        self._wheel.compare_with_file()
        self._blocks.clear()

    def write(self) -> None:
        """Write the units added since the last call, without waiting for the disk."""
        self._log.write()

    def sync(self) -> None:
        """Put log and wheel on disk."""
        self._log.sync()
        self._wheel.write()

    def drop_before(self, read_ms: int) -> None:
        """Delete files of the timer log that have only units of slots before `read_ms`."""
        while self._blocks and self._blocks[0].slot_ms_max < read_ms:
            self._blocks.popleft()
        self._log.delete_before(self._blocks[0].position if self._blocks else self._log.end)

    def close(self) -> None:
        """Close the files."""
        self._log.close()
        self._wheel.close()

    @property
    def oldest_physical_offset(self) -> int | None:
        """Units below are not needed any more; None if none are; from any thread."""
        try:
            return self._blocks[0].physical_offset_min
        except IndexError:
            return None

    # --- units --------------------------------------------------------------------------------

    def append(
        self,
        slot_ms: int,
        magic: int,
        record: tuple[int, int, int],
        due_in_slot_ms: int,
        *,
        starts_chain: bool = False,
    ) -> None:
        """Add a unit to the chain of a slot, or begin that chain again.

        `record` has physical offset, size and hash of the real topic.
        """
        slot = None if starts_chain else self._wheel.get(slot_ms)
        # The delay has 32 bits; a clock that was set by weeks must not exceed them.
        now_ms = floor(self._clock.now_ms())
        written_ms = min(max(now_ms, slot_ms - AHEAD_MS_MAX), slot_ms + AHEAD_MS_MAX)
        position = self._log.append(
            UNIT.pack(
                UNIT.size,
                slot.last if slot is not None else NOWHERE,
                magic,
                written_ms,
                slot_ms - written_ms,
                *record,
                due_in_slot_ms,
            )
        )
        self._put_slot(slot_ms, slot, position, magic)
        self._note_block(position, record[0], slot_ms)

    def count(self, slot_ms: int) -> int:
        """How many messages a slot has, less recalls."""
        slot = self._wheel.get(slot_ms)
        return max(slot.count, 0) if slot is not None else 0

    def has(self, slot_ms: int) -> bool:
        """Whether a slot has a chain."""
        return self._wheel.get(slot_ms) is not None

    @property
    def last_slot_ms(self) -> int:
        """No slot after this one has a chain."""
        return max((block.slot_ms_max for block in self._blocks), default=0)

    def units(self, slot_ms: int) -> Iterator[ChainUnit]:
        """Read the units of a slot, newest first; raises StoreDamagedError if they are damaged."""
        slot = self._wheel.get(slot_ms)
        if slot is not None:
            yield from self._log.chain(slot.last, slot_ms)

    def next_slot(self, slot_ms: int, last_ms: int) -> int | None:
        """The first slot that has a chain from one slot to another; None if there is none."""
        return self._wheel.next_used(slot_ms, last_ms)

    def run(self, slot_ms: int, position: int, units_max: int) -> tuple[list[ChainUnit], int]:
        """Read some units of a slot, from the one at a position on, or from the newest on with -1.

        Returns them and the position of the next one, which is -1 at the end.
        """
        slot = self._wheel.get(slot_ms)
        if slot is None:
            return [], NOWHERE
        return self._log.run(slot.last if position < 0 else position, slot_ms, units_max)

    def _put_slot(self, slot_ms: int, slot: Slot | None, position: int, magic: int) -> None:
        count = -1 if magic & RECALL else 1
        first = position if slot is None else slot.first
        if slot is not None:
            count += slot.count
        self._wheel.put(slot_ms, Slot(first, position, count))

    def _note_block(self, position: int, physical_offset: int, slot_ms: int) -> None:
        if not self._blocks or self._blocks[-1].units >= _BLOCK_UNITS:
            self._blocks.append(_Block(position, 1, physical_offset, slot_ms))
            return
        block = self._blocks[-1]
        block.units += 1
        block.physical_offset_min = min(block.physical_offset_min, physical_offset)
        block.slot_ms_max = max(block.slot_ms_max, slot_ms)
