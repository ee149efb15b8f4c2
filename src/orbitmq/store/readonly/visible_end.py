"""Where readers outside the broker stop, and which broker wrote the store last.

An OrbitMQ broker publishes its watermark, and readers stop there. A RocketMQ broker publishes only
the store time of the newest message it flushed (`checkpoint`). Readers of a store that it has open
stop before the first record with that store time or a later one: something newer was flushed, so
every earlier record is complete. A store that was stopped cleanly is read to its end.

Both brokers may have written a store in turn. OrbitMQ's saved progress identifies the checkpoint
that OrbitMQ wrote; any other is RocketMQ's. A wrong guess does no harm: either rule alone shows
only records that survive a crash of the broker.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from orbitmq.model.queues import PhysicalOffset
from orbitmq.store.index.watermark import read_watermark
from orbitmq.store.opening.abort_file import ABORT_NAME
from orbitmq.store.opening.checkpoint import Checkpoint
from orbitmq.store.opening.parts import CHECKPOINT_NAME, OWN_FOLDER
from orbitmq.store.opening.progress import SavedProgress, read_progress
from orbitmq.store.readonly.log_files import ReadOnlyLog, physical_offset_in, store_ms_in

# Retries when two checkpoints were written while the progress was read.
_TRIES_MAX: Final = 100


class Writer(Enum):
    """Which broker wrote a store last."""

    ORBITMQ = "OrbitMQ"
    ROCKETMQ = "RocketMQ"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreState:
    """The contents of a store's small files."""

    # False while a broker has the store open, and after a crash.
    is_clean: bool
    written_by: Writer
    checkpoint: Checkpoint
    watermark: PhysicalOffset | None
    progress: SavedProgress | None


def read_state(root: Path) -> StoreState:
    """Read the small files, again if a broker changed them meanwhile."""
    state = _read_once(root)
    tries = 1
    while state.written_by is Writer.ROCKETMQ and tries < _TRIES_MAX:
        before, state = state, _read_once(root)
        if state.checkpoint == before.checkpoint:
            break
        tries += 1
    return state


def _read_once(root: Path) -> StoreState:
    own = root / OWN_FOLDER
    is_clean = not (root / ABORT_NAME).exists()
    checkpoint = Checkpoint.read(root / CHECKPOINT_NAME)
    progress = read_progress(own)
    watermark = read_watermark(own)
    if progress is not None:
        checkpoint = progress.repaired(checkpoint)
        is_ours = watermark is not None and progress.knows(checkpoint)
    else:
        is_ours = watermark is not None and not checkpoint.is_present
    return StoreState(
        is_clean=is_clean,
        written_by=Writer.ORBITMQ if is_ours else Writer.ROCKETMQ,
        checkpoint=checkpoint,
        watermark=watermark,
        progress=progress,
    )


def find_visible_end(
    state: StoreState,
    log: ReadOnlyLog,
    *,
    known: PhysicalOffset | None = None,
    hints: Iterable[PhysicalOffset] = (),
) -> PhysicalOffset:
    """Find where readers stop.

    In a store last written by RocketMQ, walk from where an earlier call ended (`known`), else from
    the first of the `hints` where a visible record starts, else from the start of the last file
    that starts with one.
    """
    if state.written_by is Writer.ORBITMQ and state.watermark is not None:
        return PhysicalOffset(max(log.start, min(state.watermark, log.room_end)))
    until_ms = None if state.is_clean else state.checkpoint.log_ms
    if known is None or known < log.start:
        known = _end_of_ours(state, log) or _walk_start(log, hints, until_ms)
    return _walk_to_end(log, known, until_ms)


def _end_of_ours(state: StoreState, log: ReadOnlyLog) -> PhysicalOffset | None:
    """Where OrbitMQ's part ended, all visible and on disk, if RocketMQ continued there."""
    if state.progress is None or state.watermark is None:
        return None
    end = PhysicalOffset(min(state.progress.flushed, state.watermark))
    return end if log.record_at(end, log.room_end) is not None else None


def _walk_start(
    log: ReadOnlyLog, hints: Iterable[PhysicalOffset], until_ms: int | None
) -> PhysicalOffset:
    for hint in hints:
        found = log.record_at(hint, log.room_end)
        if found is not None and (until_ms is None or found[1] < until_ms):
            return found[0]
    for file in reversed(log.files):
        found = log.record_at(file.first_offset, log.room_end)
        if found is not None and (until_ms is None or found[1] < until_ms):
            return found[0]
    return log.start


def _walk_to_end(log: ReadOnlyLog, start: PhysicalOffset, until_ms: int | None) -> PhysicalOffset:
    """Walk while records are visible and not stale."""
    end = start
    last_ms = 0

    def stop(*_: object) -> PhysicalOffset:
        return log.room_end

    for chunk in log.walk(start, log.room_end, on_damage=stop):
        at = 0
        while at < chunk.found.position:
            store_ms = store_ms_in(chunk.content, at)
            offset = chunk.offset + at
            if until_ms is not None and store_ms >= until_ms:
                return end
            # Compat: RocketMQ's recovery does not clear the bytes after the end; a stale record
            # that happens to start there is older than the record before it.
            is_stale = until_ms is None and store_ms < last_ms
            if is_stale or physical_offset_in(chunk.content, at) != offset:
                return end
            last_ms = store_ms
            at += int.from_bytes(chunk.content[at : at + 4])
            end = PhysicalOffset(chunk.offset + at)
    return end
