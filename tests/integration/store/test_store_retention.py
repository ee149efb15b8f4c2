"""Retention inside an open store: passes, refusals, readers meanwhile, and its options."""

from __future__ import annotations

import datetime
import errno
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from orbitmq.clock import ManualClock
from orbitmq.errors import DiskFullError, SettingsError, StateError
from orbitmq.model.queues import PhysicalOffset
from orbitmq.record.decode import decode_record
from orbitmq.settings import Settings
from orbitmq.settings.rocketmq_options import ServerRole
from orbitmq.store.config import FlushMode, StoreConfig
from orbitmq.store.message_store import MessageStore
from orbitmq.store.reading.queue_reader import ReadStatus
from orbitmq.store.retention import DiskUse, RetentionConfig
from tests.unit.store.stores import LOG_FILE_BYTES, message, open_store

HOUR_MS = 3_600_000
NOON_MS = int(datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC).timestamp() * 1000)
NEVER = RetentionConfig(delete_when="")
BODY_BYTES = 1000


class Disk:
    """A disk as full as a test says; signals when it was measured."""

    def __init__(self, used_percent: int = 10) -> None:
        self.used_percent = used_percent
        self.looked = threading.Event()

    def __call__(self, folder: Path) -> DiskUse:
        if folder.name == "consumequeue":  # the last one that a pass measures
            self.looked.set()
        return DiskUse(
            device=1,
            used_bytes=self.used_percent * 10**9,
            free_bytes=(100 - self.used_percent) * 10**9,
        )


def body(number: int) -> bytes:
    return f"{number}|".encode().ljust(BODY_BYTES, b"x")


def filled(root: Path, count: int, disk: Disk, **options: Any) -> MessageStore:
    """A store with messages whose progress is saved."""
    store = open_store(
        root,
        **{
            "retention": NEVER,
            "measure": disk,
            "clock": ManualClock(NOON_MS),
            "flush_mode": FlushMode.ASYNC,
            **options,
        },
    )
    store.confirm([store.append(message(body(number))) for number in range(count)])
    store._upkeep.round()
    return store


def age_files(root: Path, hours: float, *, below: int = 1 << 60) -> None:
    modified_ms = int(NOON_MS - hours * HOUR_MS)
    for path in (root / "commitlog").iterdir():
        if int(path.name) < below:
            os.utime(path, ns=(modified_ms * 1_000_000,) * 2)


def numbers(store: MessageStore, first: int) -> list[int]:
    found: list[int] = []
    while first < store.end_of("orders", 0):
        read = store.read("orders", 0, first)
        found += [int(decode_record(record).body.partition(b"|")[0]) for record in read.records]
        first = read.next_offset
    return found


def test_the_upkeep_thread_runs_a_pass_at_every_interval(tmp_path: Path) -> None:
    disk = Disk()
    clock = ManualClock(NOON_MS)
    retention = RetentionConfig(delete_when="", interval_ms=100)
    with filled(
        tmp_path, 300, disk, clock=clock, retention=retention, queue_flush_interval_ms=10
    ) as store:
        for _ in range(2):
            assert not disk.looked.wait(0.05), "it is not time yet"
            clock._now_ms += 100
            assert disk.looked.wait(30)
            disk.looked.clear()
        assert store.log_start == 0


def test_expired_files_are_deleted_on_request_and_all_else_stays(tmp_path: Path) -> None:
    with filled(tmp_path, 300, Disk()) as store:
        age_files(tmp_path, 100, below=2 * LOG_FILE_BYTES)

        gone = store.delete_expired()

        assert [deletion.path.name for deletion in gone] == [f"{0:020d}", f"{LOG_FILE_BYTES:020d}"]
        assert store.log_start == 2 * LOG_FILE_BYTES
        start = store.start_of("orders", 0)
        assert numbers(store, start) == list(range(start, 300))
        assert store.read("orders", 0, 0).status is ReadStatus.OFFSET_TOO_SMALL
    with pytest.raises(StateError):
        store.delete_expired()
    with open_store(tmp_path) as store:
        assert store.start_of("orders", 0) == start
        assert numbers(store, start) == list(range(start, 300))


@pytest.mark.parametrize("lost", ["zero bytes", "entries of deleted records"])
def test_a_lost_page_of_entries_hides_no_message_when_older_ones_are_deleted(
    tmp_path: Path, lost: str
) -> None:
    # A page that a bisection of the queue looks at first, and its neighbours.
    with filled(tmp_path, 1000, Disk(), queue_file_bytes=20 * 2000) as store:
        (path,) = (tmp_path / "consumequeue" / "orders" / "0").iterdir()
        content = bytearray(path.read_bytes())
        first_entry, at, page_bytes = bytes(content[:20]), 400 * 20, 204 * 20
        content[at : at + page_bytes] = (
            bytes(page_bytes) if lost == "zero bytes" else first_entry * 204
        )
        path.write_bytes(content)

        store.parts.log.delete_first()
        store.parts.queues.raise_starts(store.log_start)

        start = int(store.start_of("orders", 0))
        assert 0 < start < 100
        assert numbers(store, start) == list(range(start, 1000))


def test_records_are_kept_until_their_entries_are_on_disk(tmp_path: Path) -> None:
    with open_store(
        tmp_path, retention=NEVER, measure=Disk(95), clock=ManualClock(NOON_MS)
    ) as store:
        for number in range(200):
            store.append(message(body(number)))
        store.put(message(body(200)))

        assert store.delete_expired() == ()
        store._upkeep.round()
        assert store.delete_expired() != ()


def test_files_that_are_kept_beyond_their_time_are_logged_with_the_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    needed = PhysicalOffset(0)
    with filled(tmp_path, 200, Disk()) as store:
        store.protect_log_from(lambda: needed, "rows of a query hint=forget it")
        assert not store.delete_expired()
        age_files(tmp_path, 100)

        assert not store.delete_expired()
        assert not store.delete_expired()
        needed = store.log_end
        deleted = store.delete_expired()

    (line,) = [line for line in caplog.messages if "kept" in line]
    assert line.startswith(f"log files kept beyond their time first={0:020d} reason=last written")
    assert line.endswith("needed by rows of a query hint=forget it")
    assert deleted


def test_a_full_disk_refuses_messages_until_it_has_room(tmp_path: Path) -> None:
    disk = Disk(50)
    with filled(tmp_path, 10, disk) as store:
        disk.used_percent = 91
        store._upkeep.retain()

        with pytest.raises(DiskFullError, match=r"messages are refused: .* 91 % used") as refused:
            store.append(message(body(10)))
        with pytest.raises(DiskFullError):
            store.put(message(body(10)))
        assert "free space" in refused.value.hint
        assert refused.value.retryable
        assert numbers(store, 0) == list(range(10))

        disk.used_percent = 60
        store._upkeep.retain()
        store.put(message(body(10)))
        assert numbers(store, 0) == list(range(11))


def _put_many(store: MessageStore) -> None:
    for number in range(1, 1000):
        store.put(message(body(number)))


def test_no_room_for_the_next_file_is_the_same_error_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    allocate = os.posix_fallocate
    full = True

    def fallocate(descriptor: int, start: int, count: int) -> None:
        if full and count == LOG_FILE_BYTES:
            raise OSError(errno.ENOSPC, "No space left on device")
        allocate(descriptor, start, count)

    with filled(tmp_path, 1, Disk(), flush_mode=FlushMode.SYNC) as store:
        monkeypatch.setattr("os.posix_fallocate", fallocate)
        with pytest.raises(DiskFullError, match="no room"):
            _put_many(store)
        kept = store.end_of("orders", 0)
        assert 40 < kept < 70
        assert numbers(store, 0) == list(range(kept))

        full = False
        store.put(message(body(kept)))
        assert numbers(store, 0) == list(range(kept + 1))
    with open_store(tmp_path) as store:
        assert numbers(store, 0) == list(range(kept + 1))


def test_readers_get_bytes_or_learn_that_they_were_deleted(tmp_path: Path) -> None:
    count = 2000
    with filled(tmp_path, count, Disk(95), retention=RetentionConfig(files_max=1)) as store:
        first, begun, failures = store.log_start, threading.Barrier(5), list[object]()
        outcomes: set[ReadStatus] = set()
        done = threading.Event()
        held = store.read("orders", 0, 0)

        def read(start: int) -> None:
            begun.wait()
            while not done.is_set():
                offset = start
                while offset < count:
                    result = store.read("orders", 0, offset)
                    outcomes.add(result.status)
                    for record in result.records:
                        found = decode_record(record)
                        if found.body != body(found.queue_offset):
                            failures.append(found)
                    if result.next_offset <= offset:
                        failures.append((offset, result.status))
                        return
                    offset = result.next_offset

        readers = [threading.Thread(target=read, args=(n * 20,)) for n in range(4)]
        for thread in readers:
            thread.start()
        begun.wait()
        while store._retain().deletions:
            pass
        done.set()
        for thread in readers:
            thread.join(30)

        assert store.log_start > first
        assert failures == []
        assert outcomes <= {
            ReadStatus.FOUND,
            ReadStatus.OFFSET_TOO_SMALL,
            ReadStatus.MESSAGE_WAS_REMOVING,
        }
        assert decode_record(held.records[0]).body == body(0)


def test_a_mapping_outlives_its_file(tmp_path: Path) -> None:
    with filled(tmp_path, 300, Disk(95)) as store:
        file = store.parts.log.files[0]
        content = file.path.read_bytes()
        view = file.view[:]

        assert store.delete_expired()

        assert bytes(view) == content
        assert not file.path.exists()
        assert store.message_at(0) is None


def test_a_file_that_cannot_be_deleted_stays_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(self: Path, *, missing_ok: bool = False) -> None:
        raise PermissionError(errno.EACCES, f"{missing_ok}", str(self))

    with filled(tmp_path, 300, Disk(89)) as store:
        with monkeypatch.context() as patched:
            patched.setattr(Path, "unlink", refuse)
            store._upkeep.retain()
            store._upkeep.retain()
        assert store.log_start == 0
        assert numbers(store, 0) == list(range(300))
        assert caplog.text.count("cannot delete old files") == 1

        store._upkeep.retain()
        assert store.log_start > 0


CONF = """
storePathRootDir={root}
mappedFileSizeCommitLog=65536
mappedFileSizeConsumeQueue=2000
maxHashSlotNum=16
maxIndexNum=20
deleteWhen=
fileReservedTime=48
diskMaxUsedSpaceRatio=88
flushDiskType=ASYNC_FLUSH
warmMapedFileEnable=true
transientStorePoolEnable=true
mapedFileSizeConsumeQueue=300000
storePathConsumeQueue=/data/store/consumequeue
destroyMapedFileIntervalForcibly=120000
"""


def test_options_come_from_a_file_written_for_rocketmq_and_change_live(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text(CONF.format(root=tmp_path / "store"))
    settings = Settings.load(StoreConfig, RetentionConfig, file=file, role=ServerRole.BROKER)
    disk = Disk(80)
    store = MessageStore(
        settings.of(StoreConfig),
        retention=settings.of(RetentionConfig),
        clock=ManualClock(NOON_MS),
        measure=disk,
    )
    settings.on_change(
        lambda _: store.change_options(
            store=settings.of(StoreConfig), retention=settings.of(RetentionConfig)
        )
    )
    with store:
        store.confirm([store.append(message(body(number))) for number in range(300)])
        store._upkeep.round()
        age_files(tmp_path / "store", 50)
        store._upkeep.retain()
        assert store.log_start == 0, "80 % are below 88, and there is no hour for it"

        settings.update({"diskMaxUsedSpaceRatio": "75", "deleteFileBatchMax": "1"})
        store._upkeep.retain()
        assert store.log_start == LOG_FILE_BYTES

        settings.update({"fileReservedTime": "51", "maxMessageSize": "2000"})
        store._upkeep.retain()
        assert store.log_start == LOG_FILE_BYTES
        with pytest.raises(Exception, match="2001"):
            store.append(message(bytes(2001)))
        with pytest.raises(SettingsError, match="not an hour"):
            settings.update({"deleteWhen": "25"})

    assert [warning.split(": ", 1)[1].split()[0] for warning in settings.warnings] == [
        "warmMapedFileEnable",
        "transientStorePoolEnable",
        "mapedFileSizeConsumeQueue",
        "storePathConsumeQueue",
        "destroyMapedFileIntervalForcibly",
    ]
