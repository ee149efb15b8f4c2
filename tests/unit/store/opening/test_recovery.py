"""Where the log ends, and what below that is damage."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.errors import StoreDamagedError
from orbitmq.model.queues import PhysicalOffset
from orbitmq.record.encode import encode_record
from orbitmq.store.log.commit_log import CommitLog
from orbitmq.store.log.draft import NOWHERE
from orbitmq.store.opening.checkpoint import Checkpoint
from orbitmq.store.opening.progress import SavedProgress
from orbitmq.store.opening.recovery import (
    Known,
    find_end,
    known_by_checkpoint,
    known_by_progress,
)
from tests.unit.store.stores import write

FILE_BYTES = 64 * 1024
START = PhysicalOffset(0)


def _log(folder: Path, count: int, *, body_bytes: int = 8000, first_ms: int = 1000) -> CommitLog:
    """A log whose record n was stored at second n; eight of them fill a file."""
    log = CommitLog([folder], FILE_BYTES)
    log.load()
    for number in range(count):
        record = bytearray(91 + 6 + 4 + body_bytes)
        log.room(len(record))
        encode_record(
            record, 0, b"orders", 0, 0, log.end, b"b" * body_bytes, b"a\x01b\x02", 0, 0,
            1, NOWHERE, first_ms + number * 1000, NOWHERE, 0, 0,
        )  # fmt: skip
        write(log, record)
    return log


def _reload(log: CommitLog, folder: Path) -> CommitLog:
    again = CommitLog([folder], FILE_BYTES)
    again.load()
    assert again.end >= log.end
    return again


def test_the_end_is_after_the_last_record(tmp_path: Path) -> None:
    log = _log(tmp_path, 20)

    found = find_end(_reload(log, tmp_path), Known(walk_from=START))

    assert (found.end, found.records) == (log.end, 20)
    assert found.last_store_ms == 20_000
    assert found.torn_reason == ""


def test_a_log_that_ends_with_its_file_ends_there(tmp_path: Path) -> None:
    log = _log(tmp_path, 9)
    (tmp_path / f"{FILE_BYTES:020d}").unlink()

    found = find_end(_reload_any(tmp_path), Known(walk_from=START))

    assert found.end == FILE_BYTES
    assert log.end > FILE_BYTES


def _reload_any(folder: Path) -> CommitLog:
    log = CommitLog([folder], FILE_BYTES)
    log.load()
    return log


def test_a_walk_from_the_end_finds_it_immediately(tmp_path: Path) -> None:
    log = _log(tmp_path, 3)

    found = find_end(_reload(log, tmp_path), Known(walk_from=log.end, flushed=log.end))

    assert (found.end, found.records) == (log.end, 0)


def test_a_broken_record_above_what_was_flushed_is_a_tear(tmp_path: Path) -> None:
    log = _log(tmp_path, 5)
    third = 2 * 8101
    log.files[0].view[third + 200] ^= 1

    found = find_end(log, Known(walk_from=START, flushed=PhysicalOffset(third)))

    assert (found.end, found.records) == (third, 2)
    assert "checksum" in found.torn_reason


@pytest.mark.parametrize(("at", "reason"), [(200, "checksum"), (35, "written for offset")])
def test_a_broken_record_below_what_was_flushed_is_damage(
    tmp_path: Path, at: int, reason: str
) -> None:
    log = _log(tmp_path, 5)
    third = 2 * 8101
    log.files[0].view[third + at] ^= 1

    with pytest.raises(StoreDamagedError) as caught:
        find_end(log, Known(walk_from=START, flushed=log.end))

    assert f"{0:020d} at byte {third} (offset {third}, topic 'orders')" in str(caught.value)
    assert reason in str(caught.value)


def test_a_file_that_ends_without_room_for_a_blank_leads_to_the_next(tmp_path: Path) -> None:
    # No broker leaves fewer than eight bytes after a record; a foreign tool might.
    log = _log(tmp_path, 1, body_bytes=FILE_BYTES - 101 - 8)
    write(log, bytes(50))
    view = log.files[0].view
    buffer = bytearray(FILE_BYTES)
    size = encode_record(
        buffer, 0, b"orders", 0, 0, 0, b"b" * (FILE_BYTES - 101 - 4), b"a\x01b\x02", 0, 0, 1,
        NOWHERE, 1000, NOWHERE, 0, 0,
    )  # fmt: skip
    view[:] = memoryview(buffer)

    found = find_end(log, Known(walk_from=START))

    assert size == FILE_BYTES - 4
    assert (found.end, found.records) == (FILE_BYTES, 1)


def test_a_log_older_than_its_checkpoint_has_lost_flushed_bytes(tmp_path: Path) -> None:
    log = _log(tmp_path, 5)
    known = Known(walk_from=START, flushed_until_ms=5_000)
    assert find_end(log, known).end == log.end

    log.files[0].view[3 * 8101 + 200] ^= 1
    with pytest.raises(StoreDamagedError, match="flushed up to store time 5000"):
        find_end(log, known)


def test_a_first_record_that_is_broken_does_not_cut_everything(tmp_path: Path) -> None:
    log = _log(tmp_path, 5)
    log.files[0].view[200] ^= 1

    with pytest.raises(StoreDamagedError):
        find_end(log, Known(walk_from=START, flushed_until_ms=2_000))


# --- what is known ------------------------------------------------------------------------------


def test_our_progress_says_where_to_begin(tmp_path: Path) -> None:
    log = _log(tmp_path, 20)
    progress = SavedProgress(flushed=log.end, dispatched=PhysicalOffset(FILE_BYTES + 8101))

    clean = known_by_progress(log, progress, clean=True)
    unclean = known_by_progress(log, progress, clean=False)

    assert (clean.walk_from, clean.flushed) == (log.end, log.end)
    assert (unclean.walk_from, unclean.flushed) == (FILE_BYTES, log.end)
    assert unclean.queued_until == FILE_BYTES + 8101


def test_progress_beyond_the_files_names_the_missing_one(tmp_path: Path) -> None:
    log = _log(tmp_path, 5)
    progress = SavedProgress(flushed=PhysicalOffset(5 * FILE_BYTES + 1))

    with pytest.raises(StoreDamagedError, match=f"{5 * FILE_BYTES:020d} is missing"):
        known_by_progress(log, progress, clean=True)


def test_a_checkpoint_leads_to_the_newest_file_older_than_it(tmp_path: Path) -> None:
    # Files begin with the records of second 0, 8, 16, … after ten minutes.
    log = _log(tmp_path, 40, first_ms=600_000)
    files = [file.first_offset for file in log.files]

    def walk_from(log_ms: int, *, clean: bool = False) -> int:
        checkpoint = Checkpoint(log_ms=log_ms, queues_ms=log_ms)
        return known_by_checkpoint(log, checkpoint, clean=clean).walk_from

    assert walk_from(640_000, clean=True) == files[-3]
    assert walk_from(640_000) == 0
    assert walk_from(616_000 + 3_000 + 60_000) == files[2]
    assert walk_from(999_999_999) == files[-1]


def test_a_file_whose_first_record_is_broken_is_no_beginning(tmp_path: Path) -> None:
    log = _log(tmp_path, 20)
    log.files[2].view[200] ^= 1

    known = known_by_checkpoint(log, Checkpoint(log_ms=10**12, queues_ms=10**12), clean=False)

    assert known.walk_from == FILE_BYTES
    assert known.queued_until == FILE_BYTES
    assert known.flushed_until_ms == 10**12 - 3000


def test_bodies_below_the_flushed_offset_are_checked_unless_switched_off(tmp_path: Path) -> None:
    log = _log(tmp_path, 20)
    broken = log.files[0].view
    broken[200] ^= 1
    again = _reload(log, tmp_path)

    with pytest.raises(StoreDamagedError, match="at byte 0 "):
        find_end(again, Known(walk_from=START, flushed=log.end))
    found = find_end(again, Known(walk_from=START, flushed=log.end), check_bodies=False)
    torn = find_end(again, Known(walk_from=START, flushed=START), check_bodies=False)

    assert found.end == log.end
    assert torn.end == 0, "above the flushed offset a bad body is a tear, whatever the option says"
