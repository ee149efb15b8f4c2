"""Recovery: finds the true end of the log.

It walks the log from a point below which everything is known good. A broken record above the
flushed offset is a tear (the crash came before the sync), and the log is cut there. A broken
record below it is damage, which is reported and never silently cut.

    our progress, clean stop    walk from the flushed offset
    our progress, unclean stop  walk from the start of the file where dispatching resumes
    another broker, clean       walk from the third-last file
    another broker, unclean     walk from the newest file that is older than the checkpoint

Another broker saves no progress that we can use. Its checkpoint has the store time of the newest
record on disk, so a log that ends more than three seconds before that time has lost flushed bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from orbitmq.errors import StoreDamagedError
from orbitmq.model.queues import PhysicalOffset
from orbitmq.record.codec import walk
from orbitmq.record.decode import Found, Verdict, locate
from orbitmq.record.layout import BLANK_BYTES_MIN
from orbitmq.store.files.file_names import file_name
from orbitmq.store.files.record_checks import (
    HEAD_BYTES,
    store_ms_of,
)
from orbitmq.store.opening.checkpoint import SAFETY_MS, Checkpoint

if TYPE_CHECKING:
    from orbitmq.store.files.mapped_file import MappedFile
    from orbitmq.store.log.commit_log import CommitLog
    from orbitmq.store.opening.progress import SavedProgress

# Compat: Java flushes queues every minute, whatever its checkpoint says.
_JAVA_QUEUES_MS: Final = 60_000
_ZERO: Final = PhysicalOffset(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What is known of a log before the walk."""

    # Where to walk from; everything below counts as good.
    walk_from: PhysicalOffset
    # A broken record below is damage.
    flushed: PhysicalOffset = _ZERO
    # A log whose newest record is older has lost flushed bytes.
    flushed_until_ms: int = 0
    # Entries of records below are on disk in their queues.
    queued_until: PhysicalOffset | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """What the walk found."""

    end: PhysicalOffset
    records: int
    last_store_ms: int
    torn_reason: str


def known_by_progress(commit_log: CommitLog, saved: SavedProgress, *, clean: bool) -> Known:
    """Rely on our own saved progress; raises StoreDamagedError if log files are missing."""
    if commit_log.end < saved.flushed:
        missing = file_name(saved.flushed // commit_log.file_bytes * commit_log.file_bytes)
        raise StoreDamagedError(
            f"the log was flushed up to {saved.flushed} and its files end at {commit_log.end}: "
            f"{missing} is missing",
            hint="restore it from a copy or a replica; if the log was removed on purpose, remove "
            "the folder orbitmq of the store too. Nothing was changed",
        )
    dispatched = max(saved.dispatched, commit_log.start)
    first = dispatched // commit_log.file_bytes * commit_log.file_bytes
    return Known(
        walk_from=saved.flushed if clean else PhysicalOffset(max(first, commit_log.start)),
        flushed=saved.flushed,
        queued_until=dispatched,
    )


def known_by_checkpoint(commit_log: CommitLog, checkpoint: Checkpoint, *, clean: bool) -> Known:
    """Rely on the checkpoint of another broker."""
    files = commit_log.files
    number = max(0, len(files) - 3) if clean else _start_file(files, checkpoint)
    start = PhysicalOffset(files[number].first_offset)
    return Known(
        walk_from=start,
        flushed_until_ms=max(0, checkpoint.log_ms - SAFETY_MS),
        queued_until=None if clean else start,
    )


def _start_file(files: list[MappedFile], checkpoint: Checkpoint) -> int:
    safe_ms = checkpoint.safe_ms - _JAVA_QUEUES_MS
    for number in range(len(files) - 1, -1, -1):
        file = files[number]
        if isinstance(locate(file.view, 0, file.file_bytes, check_body=True), Found):
            continue
        store_ms = store_ms_of(bytes(file.view[:HEAD_BYTES]))
        if 0 < store_ms <= safe_ms:
            return number
    return 0


def find_end(commit_log: CommitLog, known: Known, *, check_bodies: bool = True) -> Recovered:
    """Walk the log to its true end; raises StoreDamagedError if flushed bytes are broken.

    Without `check_bodies`, a broken body below the flushed offset is left for readers to find;
    above it a crash may have torn the body, so it is always checked.
    """
    position = known.walk_from
    records, newest_ms = 0, 0
    stopped = Found(Verdict.NOTHING)
    file = commit_log.file_at(position)
    while file is not None:
        at, count, last_ms, stopped = _walk_file(
            file, position, known.flushed, check_bodies=check_bodies
        )
        records += count
        newest_ms = max(newest_ms, last_ms)
        position = PhysicalOffset(file.first_offset + at)
        rest = file.file_bytes - at
        if stopped.verdict is not Verdict.BLANK and rest >= BLANK_BYTES_MIN:
            break
        position = PhysicalOffset(file.end_offset)
        file = commit_log.file_at(position)
    if position < known.flushed or newest_ms < known.flushed_until_ms:
        raise _damage(file or commit_log.files[-1], position, stopped, known)
    is_whole = stopped.verdict in (Verdict.NOTHING, Verdict.BLANK)
    return Recovered(
        end=position,
        records=records,
        last_store_ms=newest_ms,
        torn_reason="" if is_whole else str(stopped),
    )


def _walk_file(
    file: MappedFile, position: PhysicalOffset, flushed: PhysicalOffset, *, check_bodies: bool
) -> tuple[int, int, int, Found]:
    """Walk to the end of a file, or to the first bytes that are not a record.

    Returns that position, the records passed, their newest store time, and what is there.
    """
    view, base = file.view, file.first_offset
    at = position - base
    flushed_at = min(flushed - base, file.file_bytes)
    records, newest_ms = 0, 0
    stopped = Found(Verdict.NOTHING)
    # A crash may have torn what was not flushed, so the checks there are stricter.
    for end, torn in ((flushed_at, False), (file.file_bytes, True)):
        if at < end:
            found = walk(
                view,
                at,
                end,
                base,
                check_body=check_bodies or torn,
                delay_levels_ms=(),
                with_keys=False,
                check_places=True,
                check_texts=torn,
            )
            at, stopped = found.position, found.stopped_by
            records += found.records
            newest_ms = max(newest_ms, found.newest_store_ms)
            if at < end:
                break
    return at, records, newest_ms, stopped


def _damage(
    file: MappedFile, position: PhysicalOffset, stopped: Found, known: Known
) -> StoreDamagedError:
    at = position - file.first_offset
    fields = locate(file.view, min(at, file.file_bytes), file.file_bytes, check_body=False)
    topic = "unknown"
    if not isinstance(fields, Found):
        topic = repr(bytes(file.view[fields.topic_at : fields.topic_end]).decode(errors="replace"))
    until = (
        f"offset {known.flushed}"
        if position < known.flushed
        else f"store time {known.flushed_until_ms}"
    )
    return StoreDamagedError(
        f"{file.path} at byte {at} (offset {position}, topic {topic}): {stopped}; the log was "
        f"flushed up to {until}, so this is damage and not a torn tail",
        hint="restore the file from a replica or a backup, or accept the loss: orbitmq store "
        f"accept-loss DIR --at {position}; orbitmq store verify DIR shows what is lost. Nothing "
        "was changed",
    )
