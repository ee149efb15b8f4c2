"""Queues, index and watermark move together."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from orbitmq.errors import DiskFullError
from orbitmq.store.config import FlushMode
from orbitmq.store.index.watermark import read_watermark
from tests.unit.store.stores import message, open_store


def test_listeners_are_notified_once_per_round_which_queues_grew(tmp_path: Path) -> None:
    heard: list[set[int]] = []
    with open_store(tmp_path) as store:
        store.on_visible(lambda queues: heard.append({queue.queue_id for queue in queues}))
        store.append(message(queue_id=1))
        store.append(message(queue_id=2))
        assert heard == []
        store.put(message(queue_id=2))

    assert heard == [{1, 2}]


def test_a_listener_that_fails_harms_nobody(tmp_path: Path) -> None:
    heard: list[int] = []

    def fail(_: object) -> None:
        raise RuntimeError("a bug of the listener")

    with open_store(tmp_path) as store:
        store.on_visible(fail)
        store.on_visible(lambda queues: heard.append(len(queues)))
        store.put(message())
        store.put(message())

    assert heard == [1, 1]


def test_published_messages_are_visible_before_they_are_on_disk_under_async_flush(
    tmp_path: Path,
) -> None:
    with open_store(tmp_path, flush_mode=FlushMode.ASYNC, flush_interval_ms=60_000) as store:
        store.append(message())
        assert store.end_of("orders", 0) == 0
        store.publish()

        assert store.end_of("orders", 0) == 1
        assert store.visible == store.log_end == read_watermark(tmp_path / "orbitmq")
        assert store.flushed == 0


def test_publishing_does_nothing_under_sync_flush(tmp_path: Path) -> None:
    with open_store(tmp_path, flush_interval_ms=60_000) as store:
        store.append(message())
        store.publish()

        assert store.visible == 0
        assert store.end_of("orders", 0, committed=False) == 1


def test_records_that_the_index_has_no_room_for_are_shown_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    allocate = os.posix_fallocate

    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with open_store(tmp_path) as store:
        store.put(message(b"0"))
        monkeypatch.setattr("os.posix_fallocate", full)
        receipt = store.put(message(b"1", properties={"KEYS": "k"}))
        assert store.visible < receipt.end
        with pytest.raises(DiskFullError, match="cannot write to the store"):
            store.put(message(b"2"))

        monkeypatch.setattr("os.posix_fallocate", allocate)
        store._upkeep.round()

        assert store.visible == receipt.end
        assert [found.body for found in store.find("orders", "k")] == [b"1"]
        store.put(message(b"2"))
        assert store.end_of("orders", 0) == 3
