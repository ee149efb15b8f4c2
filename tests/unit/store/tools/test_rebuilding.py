from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest

from orbitmq.errors import StoreDamagedError, StoreError, StoreFormatError, StoreLockedError
from orbitmq.store.log.draft import Draft
from orbitmq.store.readonly.readonly_store import ReadOnlyStore
from orbitmq.store.tools.rebuilding import RebuildOptions, Rebuilt, rebuild
from orbitmq.store.tools.verification import verify
from tests.unit.store.written_stores import (
    LOG_FILE_BYTES,
    QUEUE_FILE_BYTES,
    WriterProcess,
    as_rocketmq,
    change,
    draft,
    fill,
    open_store,
    snapshot,
)


def queue_files(root: Path) -> dict[str, bytes]:
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in (root / "consumequeue").rglob("*")
        if path.is_file()
    }


def everything(root: Path) -> dict[str, tuple[int, int, bytes]]:
    return {name: facts for name, facts in snapshot(root).items() if name != "lock"}


def assert_fine(root: Path) -> None:
    with ReadOnlyStore(root) as store:
        assert verify(store).findings.problems == []


def test_queues_and_index_are_made_again_as_they_were(tmp_path: Path) -> None:
    fill(tmp_path)
    before = queue_files(tmp_path)
    log_before = snapshot(tmp_path / "commitlog")
    shutil.rmtree(tmp_path / "consumequeue" / "topic0")
    change(tmp_path / "consumequeue" / "topic1" / "0" / f"{0:020d}", 0, b"\xff" * 1000)
    for path in (tmp_path / "index").iterdir():
        change(path, 40, b"\xff" * 400)
    progress: list[tuple[int, int]] = []

    # Queue files of 1000 bytes are still there to see the size.
    made = rebuild(tmp_path, on_progress=lambda done, total: progress.append((done, total)))

    assert (made.records, made.queues, made.entries, made.keys) == (1000, 4, 1000, 3000)
    assert made.has_index
    assert made.notes == []
    assert queue_files(tmp_path) == before
    assert snapshot(tmp_path / "commitlog") == log_before
    assert progress[-1] == (made.end, made.end)
    assert not (tmp_path / "orbitmq" / "rebuild").exists()
    assert_fine(tmp_path)


def test_a_broker_goes_on_where_a_rebuild_left_off(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fill(tmp_path)
    rebuild(tmp_path)

    fill(tmp_path, 500, first=1000)

    assert "built again" not in caplog.text
    assert_fine(tmp_path)
    with ReadOnlyStore(tmp_path) as store:
        assert store.bounds("topic0", 0).end == 375


def test_a_store_of_rocketmq_is_rebuilt(tmp_path: Path) -> None:
    fill(tmp_path)
    as_rocketmq(tmp_path)
    before = queue_files(tmp_path)

    rebuild(tmp_path)

    assert queue_files(tmp_path) == before
    assert not (tmp_path / "orbitmq").is_dir() or not list((tmp_path / "orbitmq").iterdir())
    assert_fine(tmp_path)


def test_a_store_left_by_a_crash_is_rebuilt_and_recovers(tmp_path: Path) -> None:
    with WriterProcess(tmp_path, queue_flush_interval_ms=60_000) as writer:
        writer.ask(first=0, count=500)
        writer.kill()

    options = RebuildOptions(queue_file_bytes=QUEUE_FILE_BYTES)
    made = rebuild(tmp_path, options)

    assert "opening it recovers" in made.notes[0]
    with open_store(tmp_path) as store:
        assert store.end_of("topic0", 0) == 125
    assert_fine(tmp_path)


def test_queues_whose_records_are_all_deleted_go_on_where_they_were(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        for number in range(70):
            store.put(Draft(topic="old", body=b"%d" % number))
        while store.log_end < 2 * LOG_FILE_BYTES:
            store.put(draft(0))
        parts = store.parts
        parts.queues.raise_starts(parts.log.delete_first())
        assert store.start_of("old", 0) == store.end_of("old", 0) == 70

    rebuild(tmp_path)

    assert_fine(tmp_path)
    with open_store(tmp_path) as store:
        assert store.start_of("old", 0) == 70
        assert store.put(Draft(topic="old", body=b"next")).queue_offset == 70


def test_a_topic_made_again_gets_its_newer_records(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.put_batch([Draft(topic="one", body=b"old") for _ in range(10)])
        store.delete_topic("one")
        store.put_batch([Draft(topic="one", body=b"new") for _ in range(3)])

    made = rebuild(tmp_path)

    assert "starts over at 0" in made.notes[0]
    with ReadOnlyStore(tmp_path) as store_again:
        assert [m.body for m in store_again.messages("one", 0, 0, 10)] == [b"new"] * 3


def test_numbers_that_jump_are_reported(tmp_path: Path) -> None:
    fill(tmp_path, 20)
    with ReadOnlyStore(tmp_path) as store:
        offsets = [offset for offset, _ in store.records()]
    # Two records of one queue become rolled-back halves, which have no entry.
    for number in (4, 8):
        change(tmp_path / "commitlog" / f"{0:020d}", offsets[number] + 36, (0xC).to_bytes(4))

    made = rebuild(tmp_path)

    assert made.notes == [
        "queue 0 of topic 'topic0' jumps from 1 to 3; its entries continue without a gap, as in "
        "RocketMQ"
    ]


def test_a_damaged_log_is_not_rebuilt_from_and_nothing_is_changed(tmp_path: Path) -> None:
    fill(tmp_path)
    change(tmp_path / "commitlog" / f"{LOG_FILE_BYTES:020d}", 4, b"junk")
    before = everything(tmp_path)

    with pytest.raises(StoreDamagedError, match="verify"):
        rebuild(tmp_path)

    assert everything(tmp_path) == before
    assert not (tmp_path / "orbitmq" / "rebuild").exists()


def test_a_store_in_use_is_refused(tmp_path: Path) -> None:
    with open_store(tmp_path), pytest.raises(StoreLockedError):
        rebuild(tmp_path)


def test_what_is_no_store_or_not_built_here_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="not a folder"):
        rebuild(tmp_path / "none")
    (tmp_path / "consumequeue" / "%LMQ%x" / "0").mkdir(parents=True)
    with pytest.raises(StoreFormatError, match="other topics"):
        rebuild(tmp_path)


def test_sizes_and_index_follow_the_options_if_nothing_exists(tmp_path: Path) -> None:
    fill(tmp_path, 100)
    shutil.rmtree(tmp_path / "consumequeue")
    shutil.rmtree(tmp_path / "index")

    options = RebuildOptions(queue_file_bytes=400, index_slots=10, index_entries=1000)
    made = rebuild(tmp_path, options)

    assert made.has_index
    assert made.notes == []
    assert {path.stat().st_size for path in (tmp_path / "consumequeue").glob("*/*/*")} == {400}
    assert [path.stat().st_size for path in (tmp_path / "index").iterdir()] == [20_080]


def test_an_index_is_made_only_where_there_was_one_or_it_is_asked_for(tmp_path: Path) -> None:
    fill(tmp_path, 100, index_enable=False)

    def has_index(made: Rebuilt) -> tuple[bool, bool]:
        return made.has_index, bool(list((tmp_path / "index").glob("*")))

    asked = RebuildOptions(with_index=True, index_slots=100, index_entries=400)
    assert has_index(rebuild(tmp_path)) == (False, False)
    assert has_index(rebuild(tmp_path, asked)) == (True, True)
    assert has_index(rebuild(tmp_path)) == (True, True)
    assert has_index(rebuild(tmp_path, RebuildOptions(with_index=False))) == (False, False)


def test_an_interrupted_rebuild_leaves_the_old_files(tmp_path: Path) -> None:
    fill(tmp_path)
    before = everything(tmp_path)

    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt(done, total)

    with pytest.raises(KeyboardInterrupt):
        rebuild(tmp_path, on_progress=interrupt)
    assert everything(tmp_path) == before

    # What a killed process leaves is cleared away, and queues put aside come back.
    folder = tmp_path / "orbitmq" / "rebuild"
    folder.mkdir()
    (tmp_path / "consumequeue").rename(folder / "old-consumequeue")
    (folder / "index").mkdir()
    made = rebuild(tmp_path)
    assert made.queues == 4
    assert not folder.exists()
    assert_fine(tmp_path)


def test_folders_are_exchanged_in_two_steps_where_the_system_has_no_single_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path)
    before = queue_files(tmp_path)
    monkeypatch.setattr("ctypes.CDLL", lambda *_, **__: object())

    rebuild(tmp_path)

    assert queue_files(tmp_path) == before
    assert_fine(tmp_path)


def test_a_size_that_nothing_tells_is_noted(tmp_path: Path) -> None:
    fill(tmp_path, 10)
    shutil.rmtree(tmp_path / "consumequeue")

    assert "6000000 bytes" in rebuild(tmp_path).notes[0]


def test_an_index_file_that_cannot_be_read_is_passed_over(tmp_path: Path) -> None:
    fill(tmp_path)
    (tmp_path / "index" / "00000000000000001").write_bytes(b"short")

    assert "too few" in rebuild(tmp_path).notes[0]
    assert_fine(tmp_path)

    for path in (tmp_path / "index").iterdir():
        path.write_bytes(b"short")
    with pytest.raises(StoreFormatError, match="--index-slots"):
        rebuild(tmp_path)
    rebuild(tmp_path, RebuildOptions(index_slots=100, index_entries=400))
    assert_fine(tmp_path)


def test_folders_that_cannot_be_exchanged_stay_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path)
    before = everything(tmp_path)

    class OtherDisk:
        def renameat2(self, *_: object) -> int:
            return -1

    monkeypatch.setattr("ctypes.CDLL", lambda *_, **__: OtherDisk())
    monkeypatch.setattr("ctypes.get_errno", lambda: errno.EXDEV)
    with pytest.raises(StoreError, match="on one disk"):
        rebuild(tmp_path)
    assert everything(tmp_path) == before

    monkeypatch.setattr("ctypes.get_errno", lambda: errno.EINVAL)
    rename = Path.rename

    def fail_once(self: Path, target: Path) -> Path:
        if self.parent.name == "rebuild" and not self.name.startswith("old-"):
            raise OSError(errno.EXDEV, "other disk")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail_once)
    with pytest.raises(OSError, match="other disk"):
        rebuild(tmp_path)
    assert everything(tmp_path) == before


def test_an_odd_queue_without_records_is_left_out(tmp_path: Path) -> None:
    fill(tmp_path, 100)
    odd = tmp_path / "consumequeue" / "gone" / "0"
    odd.mkdir(parents=True)
    (odd / f"{0:020d}").write_bytes(b"odd")

    made = rebuild(tmp_path)

    assert "queue 0 of topic 'gone' is lost" in made.notes[0]
    assert made.queues == 4
    assert not odd.exists()
