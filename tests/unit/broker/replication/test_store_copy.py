"""What a slave keeps of its master's store beside the log."""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitmq.broker.replication.store_copy import StoreCopy
from orbitmq.broker.topics.topic_table import TopicTable
from orbitmq.clock import ManualClock
from orbitmq.errors import DiskFullError
from orbitmq.model.topics import TopicConfig
from orbitmq.protocol.requests.metadata import StoreTables
from orbitmq.store.message_store import MessageStore
from tests.unit.store.stores import message, open_store

TOPIC = "orders"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    """A store with a message of a topic that was deleted then."""
    with open_store(tmp_path / "store", is_copy=True) as store:
        store.put(message())
        store.delete_topic(TOPIC)
        yield store


@pytest.fixture
def topics(tmp_path: Path) -> TopicTable:
    return TopicTable(tmp_path, clock=ManualClock())


def tables(deleted: dict[str, int], log_start: int = 0) -> StoreTables:
    return StoreTables(reserved=[], deleted=deleted, log_start=log_start)


def follow(copy: StoreCopy, master: StoreTables) -> None:
    """Follow tables that the master was asked for just now."""
    copy.follow(master, copy.store.deleted_topics())


async def test_a_topic_that_the_master_has_is_restored(
    store: MessageStore, topics: TopicTable
) -> None:
    await topics.put(TopicConfig(name=TOPIC))

    follow(StoreCopy(store, topics), tables({}))

    assert store.end_of(TOPIC, 0) == 1


async def test_a_topic_stays_deleted_where_the_master_deleted_it(
    store: MessageStore, topics: TopicTable
) -> None:
    await topics.put(TopicConfig(name=TOPIC))

    follow(StoreCopy(store, topics), tables({TOPIC: store.log_end}))
    # The master's retention has deleted all of it, with the note of the deletion.
    follow(StoreCopy(store, topics), tables({}, log_start=store.log_end))

    assert store.end_of(TOPIC, 0) == 0
    assert store.deleted_topics() == {TOPIC: store.log_end}


async def test_the_place_of_a_deletion_becomes_the_master_s_once_the_topic_stays_away(
    store: MessageStore, topics: TopicTable
) -> None:
    copy, end = StoreCopy(store, topics), store.log_end

    follow(copy, tables({TOPIC: 5}))
    assert store.deleted_topics() == {TOPIC: end}
    follow(copy, tables({TOPIC: 5}))

    assert store.deleted_topics() == {TOPIC: 5}


async def test_a_topic_that_cannot_be_restored_is_named_once(
    store: MessageStore, topics: TopicTable, caplog: pytest.LogCaptureFixture
) -> None:
    await topics.put(TopicConfig(name=TOPIC))
    store.parts.log.files[0].view[4:8] = b"\xff" * 4
    copy = StoreCopy(store, topics)

    follow(copy, tables({}))
    follow(copy, tables({}))

    named = [one.getMessage() for one in caplog.records if "lack the messages" in one.message]
    assert len(named) == 1
    assert f"topic={TOPIC} offset={store.log_end}" in named[0]


async def test_a_topic_created_again_loses_what_the_master_deleted_of_it_before(
    tmp_path: Path, topics: TopicTable
) -> None:
    await topics.put(TopicConfig(name=TOPIC))
    with open_store(tmp_path / "copy", is_copy=True) as store:
        store.put(message(b"old"))
        deleted_until = store.log_end
        copy = StoreCopy(store, topics)

        follow(copy, tables({TOPIC: deleted_until + 1}))
        assert store.end_of(TOPIC, 0) == 1, "the log has yet to get there"
        store.put(message(b"new", queue_id=1))
        follow(copy, tables({TOPIC: deleted_until}))

        assert [store.end_of(TOPIC, queue_id) for queue_id in (0, 1)] == [0, 1]
        assert store.deleted_topics() == {TOPIC: deleted_until}


async def test_a_deletion_that_is_newer_than_the_master_s_tables_is_not_undone(
    store: MessageStore, topics: TopicTable
) -> None:
    await topics.put(TopicConfig(name=TOPIC))
    copy, end = StoreCopy(store, topics), store.log_end

    copy.follow(tables({}), {})
    copy.follow(tables({}), {TOPIC: end - 1})

    assert store.deleted_topics() == {TOPIC: end}
    assert store.end_of(TOPIC, 0) == 0


async def test_a_topic_that_could_not_be_restored_on_a_full_disk_is_restored_later(
    store: MessageStore, topics: TopicTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    await topics.put(TopicConfig(name=TOPIC))
    copy = StoreCopy(store, topics)

    with monkeypatch.context() as patched:
        patched.setattr("tempfile.mkstemp", full)
        with pytest.raises(DiskFullError, match="no room for deleted topics"):
            follow(copy, tables({}))
    follow(copy, tables({}))

    assert store.end_of(TOPIC, 0) == 1
    assert store.deleted_topics() == {TOPIC: 0}


async def test_a_topic_that_was_deleted_elsewhere_meanwhile_is_looked_for_once(
    tmp_path: Path, topics: TopicTable, caplog: pytest.LogCaptureFixture
) -> None:
    await topics.put(TopicConfig(name=TOPIC))
    with open_store(tmp_path / "store", is_copy=True) as store:
        # The log tells that the topic was deleted in between.
        for body in (b"old", b"new"):
            store.put(message(body))
            store.delete_topic(TOPIC)
        copy = StoreCopy(store, topics)

        with caplog.at_level(logging.INFO):
            follow(copy, tables({}))
            follow(copy, tables({}))

        assert sum("topic not restored" in one.message for one in caplog.records) == 1
        assert store.end_of(TOPIC, 0) == 0
