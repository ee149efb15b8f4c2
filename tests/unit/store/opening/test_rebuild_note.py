"""Rebuilds that are interrupted: queues without records keep their ends."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest

from orbitmq.errors import StoreDamagedError
from orbitmq.model.queues import QueueOffset
from orbitmq.store.index.consume_queue import ENTRY_BYTES
from orbitmq.store.message_store import MessageStore
from orbitmq.store.opening.rebuild_note import FILE_NAME, RebuildNote
from tests.unit.store.stores import LOG_FILE_BYTES, message, open_store
from tests.unit.store.written_stores import change

EMPTY_END = 5


def _fill(store: MessageStore, log_files: int) -> None:
    """Messages of queue 0 in the first file of the log only, and of queue 1 in all of them."""
    for _ in range(EMPTY_END):
        store.put(message())
    while store.log_end < log_files * LOG_FILE_BYTES:
        store.put(message(bytes(5_000), queue_id=1))


def _ends(store: MessageStore) -> list[int]:
    return [store.end_of("orders", queue_id) for queue_id in (0, 1)]


def _store_without_its_first_messages(folder: Path) -> tuple[Path, int]:
    """A killed store whose queue 0 has no record left; returns it and the end of queue 1."""
    killed = folder / "killed"
    with open_store(folder / "running") as store:
        store.put(message(queue_id=1))
        store._upkeep.round()
        _fill(store, log_files=3)
        store._upkeep.stop()
        store.parts.queues.write()
        shutil.copytree(folder / "running", killed)
        end = store.end_of("orders", 1)
    # So the queues end after the saved progress, which ends where the log begins.
    (killed / "commitlog" / f"{0:020d}").unlink()
    return killed, end


def test_a_second_kill_right_after_a_rebuild_loses_no_end(tmp_path: Path) -> None:
    killed, end = _store_without_its_first_messages(tmp_path)

    with open_store(killed) as store:
        store._upkeep.stop()
        shutil.copytree(killed, tmp_path / "again")
        assert _ends(store) == [EMPTY_END, end]

    with open_store(tmp_path / "again") as store:
        assert _ends(store) == [EMPTY_END, end]
        assert store.put(message()).queue_offset == EMPTY_END


def test_a_rebuild_that_fails_half_way_loses_no_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with open_store(tmp_path) as store:
        _fill(store, log_files=3)
        store._upkeep.round()
        store.parts.queues.raise_starts(store.parts.log.delete_first())
        ends, first = _ends(store), store.start_of("orders", 1)
    # A queue that begins elsewhere than it was saved puts all of them in doubt.
    change(tmp_path / "consumequeue" / "orders" / "1" / f"{0:020d}", first * ENTRY_BYTES, bytes(8))
    oldest = tmp_path / "commitlog" / f"{LOG_FILE_BYTES:020d}"
    content = oldest.read_bytes()
    change(oldest, 4, b"damage")

    with pytest.raises(StoreDamagedError):
        open_store(tmp_path)
    oldest.write_bytes(content)

    with caplog.at_level(logging.WARNING), open_store(tmp_path) as store:
        assert "an earlier rebuild was interrupted" in caplog.text
        assert _ends(store) == ends
        assert not (tmp_path / "orbitmq" / FILE_NAME).exists()


def test_a_damaged_note_is_reported_and_queues_are_rebuilt(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with open_store(tmp_path) as store:
        _fill(store, log_files=1)
        ends = _ends(store)
    RebuildNote(tmp_path / "orbitmq").write({("orders", 0): QueueOffset(1)})
    change(tmp_path / "orbitmq" / FILE_NAME, 9, b"7")

    with caplog.at_level(logging.WARNING), open_store(tmp_path) as store:
        assert _ends(store) == ends

    assert "its checksum is wrong" in caplog.text
    assert RebuildNote(tmp_path / "orbitmq").ends is None


def test_a_note_is_read_as_it_was_written(tmp_path: Path) -> None:
    ends = {("a topic", 3): QueueOffset(7), ("%RETRY%group", 0): QueueOffset(2**40)}
    RebuildNote(tmp_path / "orbitmq").write(ends)

    assert RebuildNote(tmp_path / "orbitmq").ends == ends
