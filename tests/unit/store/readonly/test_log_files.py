from __future__ import annotations

import os
from pathlib import Path

import pytest

from orbitmq.errors import RecordsDeletedError, StoreDamagedError, StoreError, StoreFormatError
from orbitmq.record.decode import decode_record
from orbitmq.store.files.file_names import file_name
from orbitmq.store.readonly.log_files import CHUNK_BYTES, ReadOnlyLog
from tests.unit.store.written_stores import LOG_FILE_BYTES, T0, change, draft, fill, open_store

NAMES = [f"{number * LOG_FILE_BYTES:020d}" for number in range(6)]


def opened(root: Path) -> ReadOnlyLog:
    return ReadOnlyLog([root / "commitlog"])


def offsets(
    log: ReadOnlyLog,
    start: int,
    end: int,
    *,
    limit: int | None = None,
    chunk_bytes: int = CHUNK_BYTES,
) -> list[int]:
    found: list[int] = []
    for chunk in log.walk(start, end, limit=limit, chunk_bytes=chunk_bytes):
        at = 0
        while at < chunk.found.position:
            found.append(chunk.offset + at)
            at += int.from_bytes(chunk.content[at : at + 4])
    return found


def end_of(root: Path) -> int:
    return int.from_bytes((root / "orbitmq" / "watermark").read_bytes()[:8])


def test_the_size_of_the_files_is_taken_from_the_files(tmp_path: Path) -> None:
    fill(tmp_path)

    log = opened(tmp_path)

    assert log.file_bytes == LOG_FILE_BYTES
    assert [file.path.name for file in log.files] == NAMES
    assert (log.start, log.room_end) == (0, 6 * LOG_FILE_BYTES)


@pytest.mark.parametrize("chunk_bytes", [8, 300, 1000, 65_536, 1 << 20])
def test_a_walk_finds_every_record_whatever_the_size_of_its_reads(
    tmp_path: Path, chunk_bytes: int
) -> None:
    fill(tmp_path, 400)
    log = opened(tmp_path)

    found = offsets(log, 0, end_of(tmp_path), chunk_bytes=chunk_bytes)

    assert len(found) == 400
    assert found == sorted(set(found))


def test_ranges_that_meet_show_each_record_once(tmp_path: Path) -> None:
    fill(tmp_path, 250)
    log = opened(tmp_path)
    end = end_of(tmp_path)
    every = offsets(log, 0, end)

    for split in (every[10], every[10] + 1, every[11] - 1, LOG_FILE_BYTES, LOG_FILE_BYTES - 3):
        second = next(offset for offset in [*every, end] if offset >= split)
        first = offsets(log, 0, split, limit=end)

        assert first + offsets(log, second, end) == every


def test_a_record_larger_than_a_read_is_read_whole(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.put(draft(0, body_bytes=50_000))
        store.put(draft(1))
    log = opened(tmp_path)

    (first, second) = log.walk(0, end_of(tmp_path), chunk_bytes=4096)

    assert len(decode_record(first.content).body) == 50_000
    assert second.found.records == 1


def test_bytes_that_are_no_record_are_reported_with_file_and_position(tmp_path: Path) -> None:
    fill(tmp_path)
    log = opened(tmp_path)
    place = offsets(log, 0, end_of(tmp_path))[200]
    change(tmp_path / "commitlog" / NAMES[1], place - LOG_FILE_BYTES + 4, b"junk")

    with pytest.raises(StoreDamagedError, match=rf"{place - LOG_FILE_BYTES} of .*{NAMES[1]}"):
        offsets(log, 0, end_of(tmp_path))


def test_a_deleted_file_is_reported_with_the_new_start(tmp_path: Path) -> None:
    fill(tmp_path)
    log = opened(tmp_path)
    (tmp_path / "commitlog" / NAMES[0]).unlink()

    with pytest.raises(RecordsDeletedError) as raised:
        log.read(0, 8)

    assert raised.value.start == LOG_FILE_BYTES


def test_a_file_being_read_stays_readable_until_the_log_is_refreshed(tmp_path: Path) -> None:
    fill(tmp_path)
    log = opened(tmp_path)
    before = log.read(0, 100)
    (tmp_path / "commitlog" / NAMES[0]).unlink()

    assert log.read(0, 100) == before

    log.refresh()
    with pytest.raises(RecordsDeletedError):
        log.read(0, 100)


def test_a_file_that_shrinks_under_a_reader_is_an_error(tmp_path: Path) -> None:
    fill(tmp_path)
    log = opened(tmp_path)
    log.read(0, 8)
    os.truncate(tmp_path / "commitlog" / NAMES[0], 100)

    with pytest.raises(StoreFormatError, match=NAMES[0]):
        log.read(50, 1000)


def test_a_file_missing_in_the_middle_is_an_error_where_it_is_needed(tmp_path: Path) -> None:
    fill(tmp_path)
    (tmp_path / "commitlog" / NAMES[2]).unlink()
    log = opened(tmp_path)

    assert offsets(log, 0, LOG_FILE_BYTES)
    with pytest.raises(StoreDamagedError, match=NAMES[2]):
        offsets(log, 0, end_of(tmp_path))


def test_an_offset_beyond_the_log_is_an_error(tmp_path: Path) -> None:
    fill(tmp_path, 10)

    with pytest.raises(StoreError, match="beyond the log"):
        opened(tmp_path).read(LOG_FILE_BYTES, 8)


def test_a_last_file_that_is_being_made_is_left_out(tmp_path: Path) -> None:
    fill(tmp_path, 10)
    (tmp_path / "commitlog" / NAMES[1]).write_bytes(b"")

    assert len(opened(tmp_path).files) == 1


def test_a_log_whose_only_file_is_being_made_is_empty(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / NAMES[0]).write_bytes(b"")

    assert opened(tmp_path).files == []


def test_files_of_several_sizes_are_refused(tmp_path: Path) -> None:
    fill(tmp_path)
    os.truncate(tmp_path / "commitlog" / NAMES[2], 1000)

    with pytest.raises(StoreFormatError, match=NAMES[2]):
        opened(tmp_path)


def test_names_that_are_no_offsets_are_listed_separately(tmp_path: Path) -> None:
    fill(tmp_path, 10)
    stranger = tmp_path / "commitlog" / "notes.txt"
    stranger.write_text("mine")

    log = opened(tmp_path)

    assert log.strange_files == [stranger]
    assert len(log.files) == 1


def test_the_record_after_a_blank_end_is_found_in_the_next_file(tmp_path: Path) -> None:
    fill(tmp_path)
    log = opened(tmp_path)
    last = [offset for offset in offsets(log, 0, end_of(tmp_path)) if offset < LOG_FILE_BYTES][-1]
    blank = last + int.from_bytes(log.read(last, 4))

    found = log.record_at(blank, log.room_end)

    assert found is not None
    assert found[0] == LOG_FILE_BYTES
    assert found[1] == log.store_ms(LOG_FILE_BYTES) > T0
    assert log.record_at(end_of(tmp_path), log.room_end) is None
    assert log.record_at(last + 1, log.room_end) is None


def test_bytes_are_read_into_memory_that_is_there(tmp_path: Path) -> None:
    fill(tmp_path, 1000)
    log = ReadOnlyLog([tmp_path / "commitlog"])
    room = bytearray(1000)

    log.read_into(LOG_FILE_BYTES + 8, memoryview(room)[:500])

    assert room == log.read(LOG_FILE_BYTES + 8, 500) + bytes(500)


def test_bytes_beyond_a_file_are_not_read_into_memory(tmp_path: Path) -> None:
    fill(tmp_path, 1000)
    log = ReadOnlyLog([tmp_path / "commitlog"])
    (tmp_path / "commitlog" / file_name(0)).unlink()

    with pytest.raises(StoreDamagedError, match="ends at byte"):
        log.read_into(2 * LOG_FILE_BYTES - 10, memoryview(bytearray(20)))
    with pytest.raises(RecordsDeletedError):
        log.read_into(0, memoryview(bytearray(20)))


def test_files_missing_among_others_are_reported(tmp_path: Path) -> None:
    fill(tmp_path, 1000)
    log = ReadOnlyLog([tmp_path / "commitlog"])
    assert log.missing() == []

    for number in (0, 2, 3):
        (tmp_path / "commitlog" / file_name(number * LOG_FILE_BYTES)).unlink()
    log.refresh()

    assert log.missing() == [(2 * LOG_FILE_BYTES, 4 * LOG_FILE_BYTES)]


def test_a_last_file_of_another_size_is_set_aside(tmp_path: Path) -> None:
    fill(tmp_path, 1000)
    last = sorted((tmp_path / "commitlog").iterdir())[-1]
    assert ReadOnlyLog([tmp_path / "commitlog"]).unfinished is None
    last.write_bytes(last.read_bytes()[:500])

    log = ReadOnlyLog([tmp_path / "commitlog"])

    assert log.unfinished is not None
    assert (log.unfinished.path, log.unfinished.file_bytes) == (last, 500)
    assert last not in [file.path for file in log.files]
