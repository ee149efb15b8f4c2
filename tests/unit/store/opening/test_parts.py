"""Opening: stores of ours after any stop, and stores that Java wrote last."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orbitmq.clock import ManualClock
from orbitmq.errors import SettingsError, StoreDamagedError, StoreFormatError
from orbitmq.model.queues import PhysicalOffset
from orbitmq.record.decode import decode_record
from orbitmq.store.index.consume_queue import ENTRY
from orbitmq.store.opening.checkpoint import Checkpoint
from orbitmq.store.opening.parts import log_folders
from orbitmq.store.opening.progress import ProgressFile, SavedProgress, read_progress
from tests.crash.agreement import check_agreement
from tests.unit.store.stores import config_at, message, open_store

OWN = "orbitmq"


both_ways_to_stop = pytest.mark.parametrize("stop", ["clean", "killed"])


def _write(root: Path, first: int, count: int, **options: Any) -> None:
    with open_store(root, **options) as store:
        for number in range(first, first + count):
            store.put(
                message(b"%d" % number, queue_id=number % 2, properties={"KEYS": f"k{number}"})
            )


def _bodies(root: Path, **options: Any) -> list[int]:
    with open_store(root, **options) as store:
        queues = check_agreement(store, config_at(root, query_count_max=10_000, **options))
    found = [m for messages in queues.values() for m in messages]
    return [int(m.body) for m in sorted(found, key=lambda m: m.physical_offset)]


def _as_if_java_wrote(root: Path, stop: str) -> None:
    """Leave what a Java broker leaves: a checkpoint of its own, and progress that does not know it."""
    checkpoint = Checkpoint.read(root / "checkpoint")
    checkpoint.confirmed_offset += 1
    checkpoint.write(root / "checkpoint")
    if stop == "killed":
        (root / "abort").write_text("1")


def test_a_new_store_is_empty_and_has_an_abort_file_while_open(tmp_path: Path) -> None:
    with open_store(tmp_path / "new" / "store"):
        assert (tmp_path / "new" / "store" / "abort").read_text().isdigit()

    assert not (tmp_path / "new" / "store" / "abort").exists()
    assert _bodies(tmp_path / "new" / "store") == []


def test_a_clean_store_is_opened_without_walking_it(tmp_path: Path) -> None:
    _write(tmp_path, 0, 10)
    log = tmp_path / "commitlog" / f"{0:020d}"
    content = bytearray(log.read_bytes())
    content[88] ^= 1  # in the first record, which nobody needs to read
    log.write_bytes(content)

    with open_store(tmp_path) as store:
        assert store.end_of("orders", 0) == 5
        with pytest.raises(StoreDamagedError):
            store.read("orders", 0, 0)


@pytest.mark.parametrize("gone", ["consumequeue", "consumequeue/orders/1", "index", OWN])
@both_ways_to_stop
def test_missing_folders_are_rebuilt_from_the_log(tmp_path: Path, gone: str, stop: str) -> None:
    _write(tmp_path, 0, 100)
    shutil.rmtree(tmp_path / gone)
    if stop == "killed":
        (tmp_path / "abort").write_text("1")

    assert _bodies(tmp_path) == list(range(100))


@both_ways_to_stop
def test_an_index_switched_off_and_on_again_has_every_key(tmp_path: Path, stop: str) -> None:
    _write(tmp_path, 0, 5)
    _write(tmp_path, 5, 5, index_enable=False)
    if stop == "killed":
        (tmp_path / "abort").write_text("1")

    assert _bodies(tmp_path) == list(range(10))


@both_ways_to_stop
def test_an_inconsistent_queue_is_rebuilt(tmp_path: Path, stop: str) -> None:
    _write(tmp_path, 0, 10)
    path = tmp_path / "consumequeue" / "orders" / "0" / f"{0:020d}"
    content = bytearray(path.read_bytes())
    content[80:100] = ENTRY.pack(0, 118, 0)  # the newest entry leads to another record
    path.write_bytes(content)
    _as_if_java_wrote(tmp_path, stop)

    assert _bodies(tmp_path) == list(range(10))


def test_a_start_after_a_kill_leaves_syncing_queues_to_upkeep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed, again = tmp_path / "killed", tmp_path / "again"
    with open_store(tmp_path / "running") as store:
        for number in range(40):
            store.put(message(b"%d" % number, queue_id=number % 20))
            if number == 30:
                store._upkeep.round()
        shutil.copytree(tmp_path / "running", killed)
    synced: list[str] = []
    for call in ("fsync", "fdatasync"):
        sync = getattr(os, call)

        def spy(descriptor: int, sync: Callable[[int], None] = sync) -> None:
            path = Path(f"/proc/self/fd/{descriptor}").readlink()
            synced.extend(path.relative_to(killed).parts[:1])
            sync(descriptor)

        monkeypatch.setattr(f"os.{call}", spy)

    with open_store(killed) as store:
        assert "consumequeue" not in synced
        shutil.copytree(killed, again)
        store._upkeep.round()
        assert synced.count("consumequeue") >= 9
        monkeypatch.undo()
        progress = read_progress(killed / OWN)
        assert progress is not None
        assert progress.dispatched == store.log_end

    assert _bodies(killed) == _bodies(again) == list(range(40))


@both_ways_to_stop
def test_a_start_syncs_no_queue_that_did_not_change(
    tmp_path: Path, stop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write(tmp_path, 0, 10)
    if stop == "killed":
        (tmp_path / "abort").write_text("1")
    synced: list[Path] = []
    sync = os.fdatasync

    def spy(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink())
        sync(descriptor)

    monkeypatch.setattr("os.fdatasync", spy)
    with open_store(tmp_path):
        pass

    assert not [path for path in synced if "consumequeue" in path.parts]


# --- stores that Java wrote last ----------------------------------------------------------------


@both_ways_to_stop
def test_a_store_without_saved_progress_opens(tmp_path: Path, stop: str) -> None:
    _write(tmp_path, 0, 100)
    shutil.rmtree(tmp_path / OWN)
    _as_if_java_wrote(tmp_path, stop)

    assert _bodies(tmp_path) == list(range(100))
    progress = read_progress(tmp_path / OWN)
    assert progress is not None
    assert progress.knows(Checkpoint.read(tmp_path / "checkpoint"))


@both_ways_to_stop
def test_a_log_longer_than_our_progress_is_accepted(tmp_path: Path, stop: str) -> None:
    _write(tmp_path, 0, 50)
    marks = (tmp_path / OWN / "marks").read_bytes()
    _write(tmp_path, 50, 50)
    (tmp_path / OWN / "marks").write_bytes(marks)
    _as_if_java_wrote(tmp_path, stop)

    assert _bodies(tmp_path) == list(range(100))
    _write(tmp_path, 100, 1)
    assert _bodies(tmp_path) == list(range(101))


@both_ways_to_stop
def test_a_log_shorter_than_our_progress_is_accepted_if_java_wrote_it(
    tmp_path: Path, stop: str
) -> None:
    _write(tmp_path, 0, 5)
    progress_file = ProgressFile(tmp_path / OWN)
    progress_file.write(replace(progress_file.saved, flushed=PhysicalOffset(10**9)))
    progress_file.close()
    with pytest.raises(StoreDamagedError, match="is missing"):
        open_store(tmp_path)
    _as_if_java_wrote(tmp_path, stop)

    assert _bodies(tmp_path) == list(range(5))
    progress = read_progress(tmp_path / OWN)
    assert progress is not None
    assert progress.flushed < 10**6, "progress that leads must not stay"


def test_a_torn_tail_of_a_java_store_is_cut_and_old_damage_is_refused(tmp_path: Path) -> None:
    _write(tmp_path, 0, 10, clock=ManualClock())
    log = tmp_path / "commitlog" / f"{0:020d}"
    content = bytearray(log.read_bytes())
    with open_store(tmp_path) as store:
        places = [decode_record(r).physical_offset for r in store.read("orders", 1, 0).records]
    _as_if_java_wrote(tmp_path, "killed")
    shutil.copytree(tmp_path, tmp_path.parent / "old damage")

    content[places[-1] + 88] ^= 1  # the newest record, younger than three seconds
    log.write_bytes(content)
    assert _bodies(tmp_path) == list(range(9))

    other = tmp_path.parent / "old damage"
    checkpoint = Checkpoint.read(other / "checkpoint")
    checkpoint.log_ms += 60_000  # a minute of newer records was flushed
    checkpoint.write(other / "checkpoint")
    with pytest.raises(StoreDamagedError, match="flushed up to store time"):
        open_store(other)


@both_ways_to_stop
def test_the_log_is_written_again_only_after_an_unclean_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: str
) -> None:
    _write(tmp_path, 0, 10)
    _as_if_java_wrote(tmp_path, stop)
    written: list[int] = []
    pwrite = os.pwrite

    def spy(descriptor: int, content: bytes, at: int) -> int:
        if "/commitlog/" in str(Path(f"/proc/self/fd/{descriptor}").readlink()):
            written.append(len(content))
        return pwrite(descriptor, content, at)

    monkeypatch.setattr("os.pwrite", spy)
    with open_store(tmp_path) as store:
        assert sum(written) == (store.log_end if stop == "killed" else 0)


def test_removing_the_checkpoint_forces_a_rebuild_but_hides_no_damage(tmp_path: Path) -> None:
    _write(tmp_path, 0, 10)
    (tmp_path / "checkpoint").unlink()
    (tmp_path / "abort").write_text("1")
    assert _bodies(tmp_path) == list(range(10))

    (tmp_path / "checkpoint").unlink()
    (tmp_path / "abort").write_text("1")
    log = tmp_path / "commitlog" / f"{0:020d}"
    content = bytearray(log.read_bytes())
    content[88] ^= 1
    log.write_bytes(content)
    with pytest.raises(StoreDamagedError):
        open_store(tmp_path)


def test_stale_entries_that_java_left_after_a_cut_are_not_trusted(tmp_path: Path) -> None:
    _write(tmp_path, 0, 10)
    path = tmp_path / "consumequeue" / "orders" / "0" / f"{0:020d}"
    content = bytearray(path.read_bytes())
    content[100:120] = content[80:100]  # a sixth entry, pointing to the fifth message
    path.write_bytes(content)
    _as_if_java_wrote(tmp_path, "clean")

    assert _bodies(tmp_path) == list(range(10))


def test_a_missing_log_is_damage_unless_the_progress_is_missing_too(tmp_path: Path) -> None:
    _write(tmp_path, 0, 10)
    shutil.rmtree(tmp_path / "commitlog")

    with pytest.raises(StoreDamagedError, match="remove the folder orbitmq"):
        open_store(tmp_path)

    shutil.rmtree(tmp_path / OWN)
    assert _bodies(tmp_path) == []
    with open_store(tmp_path) as store:
        assert store.put(message()).queue_offset == 0


# --- folders and refusals -----------------------------------------------------------------------


def test_a_log_in_several_folders_is_read_and_written(tmp_path: Path) -> None:
    paths = f"{tmp_path}/b, {tmp_path}/a"
    root = tmp_path / "root"
    with open_store(root, log_path=paths) as store:
        for number in range(200):
            store.put(message(b"%d" % number + bytes(1000)))

    assert len(list((tmp_path / "a").iterdir())) == 2
    assert len(list((tmp_path / "b").iterdir())) == 2
    with open_store(root, log_path=paths) as store:
        assert store.end_of("orders", 0) == 200
        assert store.read("orders", 0, 199).records
    assert log_folders(root, paths) == [tmp_path / "a", tmp_path / "b"]
    assert log_folders(root, "") == [root / "commitlog"]


def test_a_store_of_another_kind_is_refused_and_released(tmp_path: Path) -> None:
    (tmp_path / "consumequeue").mkdir()
    (tmp_path / "consumequeue" / "CURRENT").write_text("x")

    with pytest.raises(StoreFormatError, match="RocksDB"):
        open_store(tmp_path)

    shutil.rmtree(tmp_path / "consumequeue")
    assert _bodies(tmp_path) == []


def test_other_file_sizes_than_the_stores_are_refused(tmp_path: Path) -> None:
    _write(tmp_path, 0, 5)

    with pytest.raises(StoreFormatError, match="set mappedFileSizeCommitLog"):
        open_store(tmp_path, log_file_bytes=128 * 1024)
    with pytest.raises(StoreFormatError, match="the mappedFileSizeConsumeQueue it was written"):
        open_store(tmp_path, queue_file_bytes=4000)
    with pytest.raises(StoreFormatError, match="the maxHashSlotNum and maxIndexNum it was written"):
        open_store(tmp_path, index_slots=7)
    assert _bodies(tmp_path) == list(range(5))


def test_a_clean_store_that_is_refused_for_its_sizes_stays_clean(tmp_path: Path) -> None:
    _write(tmp_path, 0, 5)

    with pytest.raises(StoreFormatError):
        open_store(tmp_path, index_slots=7)
    with pytest.raises(StoreFormatError):
        open_store(tmp_path, queue_file_bytes=4000)

    assert not (tmp_path / "abort").exists()
    assert _bodies(tmp_path) == list(range(5))


def test_progress_that_lags_behind_the_queues_is_enough(tmp_path: Path) -> None:
    _write(tmp_path, 0, 100)
    progress_file = ProgressFile(tmp_path / OWN)
    progress_file.write(
        SavedProgress(
            checkpoint_before=progress_file.saved.checkpoint_before,
            checkpoint_after=progress_file.saved.checkpoint_after,
        )
    )
    progress_file.close()
    (tmp_path / "abort").write_text("1")

    assert _bodies(tmp_path) == list(range(100))


def test_read_only_folders_get_no_new_files(tmp_path: Path) -> None:
    _write(tmp_path, 0, 100)
    files = sorted((tmp_path / "commitlog").iterdir())
    options = {
        "log_path": str(tmp_path / "new"),
        "read_only_log_path": str(tmp_path / "commitlog"),
    }
    _write(tmp_path, 100, 800, **options)

    assert sorted((tmp_path / "commitlog").iterdir()) == files
    assert list((tmp_path / "new").iterdir())
    with open_store(tmp_path, **options) as store:
        assert store.log_start == 0
        ends = [store.end_of("orders", queue_id) for queue_id in (0, 1)]
        assert ends == [450, 450]
        assert store.read("orders", 0, 0).records
        assert store.read("orders", 0, 449).records
    with pytest.raises(SettingsError, match="leaves no folder for new files"):
        open_store(tmp_path, read_only_log_path=str(tmp_path / "commitlog"))


@pytest.mark.parametrize("check", [True, False])
def test_a_broken_body_is_found_by_recovery_or_by_its_readers(
    tmp_path: Path, *, check: bool
) -> None:
    _write(tmp_path, 0, 3)
    path = tmp_path / "commitlog" / f"{0:020d}"
    content = bytearray(path.read_bytes())
    content[88] ^= 1
    path.write_bytes(content)
    (tmp_path / "abort").write_text("1")

    if check:
        with pytest.raises(StoreDamagedError, match="at byte 0 "):
            open_store(tmp_path)
        return
    with (
        open_store(tmp_path, check_bodies=False) as store,
        pytest.raises(StoreDamagedError, match="message 0 of topic"),
    ):
        store.read("orders", 0, 0)
