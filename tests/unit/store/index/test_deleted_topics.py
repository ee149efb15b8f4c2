"""Deleted topics do not come back."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from orbitmq.errors import DiskFullError
from orbitmq.model.queues import PhysicalOffset
from orbitmq.store.index.consume_queue import ENTRY
from orbitmq.store.index.deleted_topics import DeletedTopics

ENTRIES = b"".join(ENTRY.pack(n * 100, 100, 0) for n in range(5))


def _note(deleted: DeletedTopics, topic: str, end: int, log_start: int = 0) -> None:
    deleted.add(topic, PhysicalOffset(end), log_start=PhysicalOffset(log_start))


def test_entries_below_the_deletion_are_counted(tmp_path: Path) -> None:
    deleted = DeletedTopics(tmp_path / "orbitmq")
    _note(deleted, "orders", 300)

    for known in (deleted, DeletedTopics(tmp_path / "orbitmq")):
        assert known.count_deleted(b"orders", ENTRIES) == 3
        assert known.count_deleted(b"orders", ENTRIES[60:]) == 0
        assert known.count_deleted(b"others", ENTRIES) == 0


def test_a_topic_deleted_twice_ends_at_the_later_offset(tmp_path: Path) -> None:
    deleted = DeletedTopics(tmp_path)
    _note(deleted, "orders", 100)
    _note(deleted, "orders", 400)

    assert DeletedTopics(tmp_path).count_deleted(b"orders", ENTRIES) == 4


def test_topics_that_the_log_no_longer_has_are_forgotten(tmp_path: Path) -> None:
    deleted = DeletedTopics(tmp_path)
    _note(deleted, "old one", 100)
    _note(deleted, "new one", 400, log_start=200)

    assert (tmp_path / "deleted_topics").read_bytes() == b"400 new one\n"


def test_a_deletion_that_is_not_on_disk_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    deleted = DeletedTopics(tmp_path)
    _note(deleted, "orders", 100)
    monkeypatch.setattr("tempfile.mkstemp", full)

    with pytest.raises(DiskFullError, match="no room for deleted topics"):
        _note(deleted, "orders", 400)
    with pytest.raises(DiskFullError, match="no room for deleted topics"):
        deleted.lower("orders", PhysicalOffset(50))

    assert deleted.end_of("orders") == 100
