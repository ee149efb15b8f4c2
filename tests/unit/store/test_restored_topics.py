"""Topics whose deletion is undone: their queues are filled from the log of an open store."""

from __future__ import annotations

import errno
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq.errors import DiskFullError, StateError, StoreDamagedError
from orbitmq.model.queues import PhysicalOffset, QueueOffset
from orbitmq.record.decode import decode_record
from orbitmq.store.index.topic_scan import TopicScan
from orbitmq.store.message_store import MessageStore
from tests.unit.store.stores import LOG_FILE_BYTES, message, open_store

TOPIC = "orders"
START = PhysicalOffset(0)


def bodies(store: MessageStore, queue_id: int = 0, offset: int = 0) -> list[bytes]:
    found: list[bytes] = []
    while records := store.read(TOPIC, queue_id, offset + len(found)).records:
        found += [decode_record(record).body for record in records]
    return found


def fill(store: MessageStore, name: str, count: int) -> list[bytes]:
    """Store messages in turn in two queues, with others between; returns those of the first."""
    wanted = [b"%b %d" % (name.encode(), number) for number in range(count)]
    for body in wanted:
        store.append(message(body))
        store.append(message(body, queue_id=1))
        store.append(message(bytes(700), topic="other"))
    store.flush()
    return wanted


def test_a_restored_topic_has_all_messages_of_several_log_files(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        before = fill(store, "before", 150)
        assert store.log_end > 2 * LOG_FILE_BYTES
        store.delete_topic(TOPIC)

        store.restore_topic(TOPIC, noted=store.log_end, deleted_until=START)

        assert bodies(store) == bodies(store, 1) == before
        assert store.deleted_topics() == {TOPIC: START}
        crashed = shutil.copytree(tmp_path, tmp_path.with_name("crashed"))
    for root in (tmp_path, crashed):
        with open_store(root) as store:
            assert bodies(store) == bodies(store, 1) == before
            assert store.put(message(b"next")).queue_offset == len(before)


def test_messages_before_an_older_deletion_stay_away(tmp_path: Path) -> None:
    with open_store(tmp_path, is_copy=True) as slave, open_store(tmp_path / "m") as master:
        fill(master, "first", 5)
        first_end = master.log_end
        master.delete_topic(TOPIC)
        second = fill(master, "second", 5)
        copy(master, slave)
        slave.delete_topic(TOPIC)
        deleted_at = slave.log_end
        assert bodies(slave) == []

        slave.restore_topic(TOPIC, noted=deleted_at, deleted_until=first_end)

        assert bodies(slave) == bodies(slave, 1) == second


def test_messages_that_arrive_meanwhile_are_in_their_places(tmp_path: Path) -> None:
    with open_store(tmp_path, is_copy=True) as slave, open_store(tmp_path / "m") as master:
        wanted = fill(master, "before", 60)
        copy(master, slave)
        slave.delete_topic(TOPIC)
        deleted_at = slave.log_end
        wanted += fill(master, "after", 60)

        copying = threading.Thread(target=copy, args=(master, slave))
        copying.start()
        slave.restore_topic(TOPIC, noted=deleted_at, deleted_until=START)
        copying.join(60)

        assert bodies(slave) == bodies(slave, 1) == wanted


def test_a_topic_that_was_deleted_again_meanwhile_is_not_restored(tmp_path: Path) -> None:
    with open_store(tmp_path, is_copy=True) as slave, open_store(tmp_path / "m") as master:
        fill(master, "first", 5)
        copy(master, slave)
        slave.delete_topic(TOPIC)
        deleted_at = slave.log_end
        master.delete_topic(TOPIC)
        second = fill(master, "second", 3)
        copy(master, slave)

        for noted in (deleted_at, deleted_at - 1):
            assert not slave.restore_topic(TOPIC, noted=noted, deleted_until=START)

        assert bodies(slave) == bodies(slave, 1) == second
        assert slave.deleted_topics() == {TOPIC: deleted_at}


def copy(master: MessageStore, slave: MessageStore) -> None:
    """Copy what the master's log has beyond the slave's."""
    while (at := slave.log_end) < master.log_end:
        size = min(LOG_FILE_BYTES - at % LOG_FILE_BYTES, master.log_end - at)
        content = master.parts.log.pread(at, size) or b""
        if not at:
            slave.copy.begin(0)
        slave.copy.room()[:size] = content
        slave.copy.take(size)
    slave.flush()


def test_a_slave_without_room_to_note_a_deletion_shows_what_follows_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with open_store(tmp_path, is_copy=True) as slave, open_store(tmp_path / "m") as master:
        fill(master, "first", 5)
        copy(master, slave)
        master.delete_topic(TOPIC)
        second = fill(master, "second", 3)

        with monkeypatch.context() as patched:
            patched.setattr("tempfile.mkstemp", full)
            copy(master, slave)
            assert slave.visible < slave.log_end
            with pytest.raises(DiskFullError, match="no room for deleted topics"):
                slave.raise_deletion(TOPIC, deleted_until=slave.visible)
        slave._upkeep.round()

        assert not slave.is_fenced
        assert slave.visible == slave.log_end
        assert bodies(slave) == bodies(slave, 1) == second


def test_a_closed_store_changes_no_topic_as_another_may_have_its_files(tmp_path: Path) -> None:
    with open_store(tmp_path, is_copy=True) as before:
        fill(before, "m", 5)
    end = before.log_end

    with open_store(tmp_path) as store:
        changes: tuple[Callable[[], object], ...] = (
            lambda: before.delete_topic(TOPIC, until=end),
            lambda: before.delete_topic(TOPIC),
            lambda: before.raise_deletion(TOPIC, deleted_until=end),
            lambda: before.lower_deletion(TOPIC, noted=0, deleted_until=end),
            lambda: before.follow_reserved_offsets({(TOPIC, 0): QueueOffset(9)}),
            lambda: before.keep_in_memory(TOPIC),
        )
        for change in changes:
            with pytest.raises(StateError, match="the store is closed"):
                change()

        assert len(bodies(store)) == 5
        assert not (tmp_path / "orbitmq" / "deleted_topics").exists()
        assert (tmp_path / "consumequeue" / TOPIC / "0").is_dir()


def test_files_of_others_do_not_keep_a_topic_from_being_replaced(tmp_path: Path) -> None:
    with open_store(tmp_path, is_copy=True) as slave, open_store(tmp_path / "m") as master:
        fill(master, "first", 5)
        copy(master, slave)
        slave.parts.queues.sync()
        backup = tmp_path / "consumequeue" / TOPIC / "1" / "backup"
        backup.touch()
        master.delete_topic(TOPIC)
        second = fill(master, "second", 3)

        copy(master, slave)

        assert bodies(slave) == bodies(slave, 1) == second
        assert backup.exists()


def test_a_topic_with_too_many_messages_is_refused(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        fill(store, "m", 6)
        scan = TopicScan(store.parts.log, TOPIC.encode(), START, (), entries_max=10)

        with pytest.raises(StoreDamagedError, match="more than 10 messages"):
            scan.run(store.log_end)


def test_a_damaged_log_restores_nothing(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        fill(store, "m", 6)
        store.delete_topic(TOPIC)
        view = store.parts.log.files[0].view
        view[4:8] = b"\xff" * 4

        with pytest.raises(StoreDamagedError, match="at offset 0"):
            store.restore_topic(TOPIC, noted=store.log_end, deleted_until=START)

        assert store.deleted_topics() == {TOPIC: store.log_end}
        assert bodies(store) == []


# --- topics created again while a slave did not look --------------------------------------------


def test_a_copy_keeps_new_messages_of_a_queue_that_had_none_before(tmp_path: Path) -> None:
    with open_store(tmp_path, is_copy=True) as slave, open_store(tmp_path / "m") as master:
        put(master, b"old", queue_id=0)
        copy(master, slave)
        master.delete_topic(TOPIC)
        put(master, b"new", queue_id=1)
        put(master, b"new", queue_id=0)

        copy(master, slave)

        assert (bodies(slave), bodies(slave, 1)) == ([b"new"], [b"new"])


def test_a_copy_made_at_once_has_only_the_last_of_several_lives(tmp_path: Path) -> None:
    with open_store(tmp_path, is_copy=True) as slave, open_store(tmp_path / "m") as master:
        for life in range(4):
            master.delete_topic(TOPIC)
            for number in range(4 - life):
                put(master, b"%d %d" % (life, number), queue_id=0)
                put(master, b"%d %d" % (life, number), queue_id=1)

        copy(master, slave)

        assert bodies(slave) == bodies(slave, 1) == [b"3 0"]


@pytest.mark.parametrize("held", [False, True], ids=["shown", "held"])
def test_what_a_promoted_slave_had_not_shown_yet_is_read_as_a_copy(
    tmp_path: Path, *, held: bool
) -> None:
    with open_store(tmp_path / "m") as master:
        put(master, b"old", queue_id=0)
        put(master, b"old", queue_id=0)
        with open_store(tmp_path / "s", held=True, is_copy=True) as slave:
            copy(master, slave)
            slave.limit_visible(master.log_end)
            master.delete_topic(TOPIC)
            put(master, b"new", queue_id=0)
            copy(master, slave)
            end = slave.log_end
            assert slave.visible < end

        with open_store(tmp_path / "s", held=held, copied_until=end) as promoted:
            promoted.limit_visible(None)
            put(promoted, b"next", queue_id=0)

            assert bodies(promoted) == [b"new", b"next"]


def test_a_copy_deletes_what_its_master_deleted_once_it_knows_where(tmp_path: Path) -> None:
    with open_store(tmp_path, is_copy=True) as slave, open_store(tmp_path / "m") as master:
        put(master, b"old", queue_id=0)
        master.delete_topic(TOPIC)
        deleted_until = master.log_end
        put(master, b"new", queue_id=1)
        copy(master, slave)
        assert (bodies(slave), bodies(slave, 1)) == ([b"old"], [b"new"])

        slave.delete_topic(TOPIC, until=deleted_until)

        assert (bodies(slave), bodies(slave, 1)) == ([], [b"new"])
        assert slave.deleted_topics() == {TOPIC: deleted_until}


def test_messages_that_are_shown_while_older_ones_are_deleted_stay(tmp_path: Path) -> None:
    with open_store(tmp_path, is_copy=True) as slave, open_store(tmp_path / "m") as master:
        for life in range(30):
            put(master, b"old", queue_id=0)
            copy(master, slave)
            slave.limit_visible(slave.log_end)
            master.delete_topic(TOPIC)
            deleted_until = master.log_end
            new = b"new %d" % life
            put(master, new, queue_id=0)
            put(master, new, queue_id=1)
            copy(master, slave)

            showing = threading.Thread(target=slave.limit_visible, args=(None,))
            showing.start()
            slave.delete_topic(TOPIC, until=deleted_until)
            showing.join(60)

            assert (bodies(slave), bodies(slave, 1)) == ([new], [new])
            master.delete_topic(TOPIC)
            slave.delete_topic(TOPIC, until=master.log_end)


def test_a_read_that_meets_a_queue_while_it_is_replaced_repeats_on_the_new_one(
    tmp_path: Path,
) -> None:
    with open_store(tmp_path) as store:
        for number in range(12):
            put(store, b"%d" % number, queue_id=number % 3)
        queue = store.parts.queues.find(TOPIC, 2)
        assert queue is not None
        ends = [entry[0] for number in (2, 1) if (entry := queue.entry(QueueOffset(number)))]

        def replace(_: bytes) -> bool:
            if ends:
                store.raise_deletion(TOPIC, deleted_until=PhysicalOffset(ends.pop()))
            return True

        found = [
            store.read(TOPIC, 2, 0, 10, record_filter=replace),
            store.read_bulk(TOPIC, 2, 0, 10, 1000, record_filter=replace),
        ]

        assert [(one.start, one.next_offset, one.records) for one in found] == [(2, 2, [])] * 2


def test_readers_see_no_queue_vanish_while_older_messages_of_its_topic_are_deleted(
    tmp_path: Path,
) -> None:
    with open_store(tmp_path) as store:
        for number in range(120):
            put(store, b"%d" % number, queue_id=number % 3)
        seen: set[tuple[int, int, bool]] = set()
        ended = threading.Event()

        def read() -> None:
            while not ended.is_set():
                end = next(one.end for one in store.queues() if one.queue_id == 2)
                entries = store.encoded_entries(TOPIC, 2, 39, 1)
                seen.add((store.end_of(TOPIC, 2), end, bool(entries)))

        reading = threading.Thread(target=read)
        reading.start()
        queue = store.parts.queues.find(TOPIC, 2)
        assert queue is not None
        for entry in [queue.entry(QueueOffset(number)) for number in range(3, 40, 4)]:
            assert entry is not None
            store.raise_deletion(TOPIC, deleted_until=PhysicalOffset(entry[0]))
        ended.set()
        reading.join(60)

        assert seen == {(40, 40, True)}
        assert bodies(store, 2, 39) == [b"119"]


# None deletes the topic, -1 copies the log as far as it is, others send to a queue.
STEPS = st.lists(st.sampled_from((None, -1, 0, 1, 2)), max_size=40)


@settings(max_examples=40, deadline=None)
@given(steps=STEPS)
def test_a_copy_never_lacks_a_message_and_ends_up_with_no_other(steps: list[int | None]) -> None:
    with (
        TemporaryDirectory() as folder,
        open_store(Path(folder) / "s", is_copy=True) as slave,
        open_store(Path(folder) / "m") as master,
    ):
        for number, step in enumerate(steps):
            if step is None:
                master.delete_topic(TOPIC)
            elif step < 0:
                copy(master, slave)
            else:
                put(master, b"%d" % number, queue_id=step)
        copy(master, slave)
        wanted = [bodies(master, queue_id) for queue_id in range(3)]

        found = [bodies(slave, queue_id) for queue_id in range(3)]
        for live, held in zip(wanted, found, strict=True):
            assert not live or live == held
        if TOPIC in (deleted := master.deleted_topics()):
            slave.delete_topic(TOPIC, until=deleted[TOPIC])

        assert [bodies(slave, queue_id) for queue_id in range(3)] == wanted


def put(store: MessageStore, body: bytes, *, queue_id: int) -> None:
    store.append(message(body, queue_id=queue_id))
    store.flush()
