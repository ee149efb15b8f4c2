"""Cutting the tail of a log at an opening: what is kept, what is saved, and who refuses."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from orbitmq.clock import ManualClock
from orbitmq.errors import DiskFullError, StoreDamagedError, StoreError
from orbitmq.model.names import HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from orbitmq.model.queues import PhysicalOffset
from orbitmq.record.decode import decode_record
from orbitmq.record.layout import SystemFlag
from orbitmq.store.index.watermark import read_watermark
from orbitmq.store.log.draft import Receipt
from orbitmq.store.message_store import MessageStore
from orbitmq.store.opening.checkpoint import Checkpoint
from orbitmq.store.opening.cut_intent import Cut, ask_for_cut, cut_folder, cuts
from orbitmq.store.opening.progress import read_progress
from orbitmq.store.opening.rebuild_note import RebuildNote
from orbitmq.store.readonly.readonly_store import ReadOnlyStore
from orbitmq.store.timers.timers import Timers
from orbitmq.store.tools.verification import verify
from tests.crash.agreement import check_agreement
from tests.unit.store.stores import LOG_FILE_BYTES, config_at, message, open_store

EPOCH = 7
# About two and a half files of the log.
COUNT = 500


@dataclass
class Written:
    """What was written to a store, and where."""

    root: Path
    receipts: list[Receipt]

    @property
    def end(self) -> int:
        return self.receipts[-1].end

    def at(self, number: int) -> PhysicalOffset:
        return PhysicalOffset(self.receipts[number].physical_offset)

    def content(self, start: int, end: int, root: Path | None = None) -> bytes:
        files = sorted(((root or self.root) / "commitlog").iterdir())
        whole = b"".join(path.read_bytes() for path in files)
        base = int(files[0].name)
        return whole[start - base : end - base]


def _put(store: MessageStore, first: int, count: int, topic: str = "orders") -> list[Receipt]:
    receipts = [
        store.append(
            message(
                b"%d" % number + bytes(200),
                topic=topic,
                queue_id=number % 3,
                properties={"KEYS": f"k{number}", "TAGS": f"t{number % 5}"},
            )
        )
        for number in range(first, first + count)
    ]
    return store.confirm(receipts)


def _write(root: Path, count: int = COUNT, *, stop: str = "clean") -> Written:
    """Write messages and stop, or copy the folder of the running store as a kill would leave it."""
    running = root if stop == "clean" else root.with_name(root.name + "-running")
    with open_store(running) as store:
        receipts = _put(store, 0, count // 2)
        store._upkeep.round()
        receipts += _put(store, count // 2, count - count // 2)
        if stop != "clean":
            shutil.copytree(running, root)
    return Written(root, receipts)


def _numbers(store: MessageStore, root: Path, **options: Any) -> list[int]:
    queues = check_agreement(store, config_at(root, query_count_max=10_000, **options))
    found = [m for messages in queues.values() for m in messages]
    return [int(m.body.rstrip(b"\0")) for m in sorted(found, key=lambda m: m.physical_offset)]


def _check_saved(written: Written, cut: Cut | None, at: int, before: bytes) -> None:
    assert cut is not None
    assert (cut.epoch, cut.at, cut.end, cut.bytes) == (EPOCH, at, written.end, len(before))
    assert written.content(at, written.end, cut.saved_path) == before


both_ways_to_stop = pytest.mark.parametrize("stop", ["clean", "killed"])


@both_ways_to_stop
@pytest.mark.parametrize("kept", [1, 100, 300, COUNT - 1])
def test_the_tail_is_saved_and_cut(tmp_path: Path, kept: int, stop: str) -> None:
    written = _write(tmp_path / "store", stop=stop)
    root, at = written.root, written.at(kept)
    before = written.content(at, written.end)

    ask_for_cut(root, at, EPOCH)

    with open_store(root) as store:
        assert store.log_end == at
        assert _numbers(store, root) == list(range(kept))
        _check_saved(written, store.was_cut, at, before)
        assert cuts(root) == [store.was_cut]
        receipts = _put(store, kept, COUNT - kept)
        assert _numbers(store, root) == list(range(COUNT))
    assert [r.queue_offset for r in receipts] == [r.queue_offset for r in written.receipts[kept:]]
    assert _is_fine(root)


@both_ways_to_stop
@pytest.mark.parametrize("number", [1, 2])
def test_a_log_is_cut_at_the_start_of_a_file(tmp_path: Path, number: int, stop: str) -> None:
    written = _write(tmp_path / "store", stop=stop)
    root, at = written.root, PhysicalOffset(number * LOG_FILE_BYTES)
    before = written.content(at, written.end)

    ask_for_cut(root, at, EPOCH)

    kept = [n for n, r in enumerate(written.receipts) if r.physical_offset < at]
    with open_store(root) as store:
        assert store.log_end == at
        assert _numbers(store, root) == kept
        _check_saved(written, store.was_cut, at, before)
        _put(store, len(kept), 10)
        assert _numbers(store, root) == list(range(len(kept) + 10))
    assert _is_fine(root)


@both_ways_to_stop
def test_a_log_is_cut_before_the_blank_end_of_a_file(tmp_path: Path, stop: str) -> None:
    written = _write(tmp_path / "store", stop=stop)
    last, _ = next(
        (older, newer)
        for older, newer in pairwise(written.receipts)
        if newer.physical_offset == LOG_FILE_BYTES
    )

    ask_for_cut(written.root, PhysicalOffset(last.end), EPOCH)

    with open_store(written.root) as store:
        assert store.log_end == last.end < LOG_FILE_BYTES
        _put(store, written.receipts.index(last) + 1, 5)
        assert len(_numbers(store, written.root)) == written.receipts.index(last) + 6


@both_ways_to_stop
def test_a_log_is_cut_at_its_start(tmp_path: Path, stop: str) -> None:
    written = _write(tmp_path / "store", stop=stop)
    before = written.content(0, written.end)

    ask_for_cut(written.root, PhysicalOffset(0), EPOCH)

    with open_store(written.root) as store:
        assert store.log_end == 0
        assert _numbers(store, written.root) == []
        _check_saved(written, store.was_cut, 0, before)
        assert [r.queue_offset for r in _put(store, 0, 4)] == [0, 0, 0, 1]
    assert _is_fine(written.root)


@both_ways_to_stop
def test_a_log_whose_first_files_were_deleted_is_cut_at_its_start(
    tmp_path: Path, stop: str
) -> None:
    written = _write(tmp_path / "first")
    root = tmp_path / "store"
    with open_store(written.root) as store:
        store.parts.shape_file.raise_log_start(LOG_FILE_BYTES)
        store.parts.log.delete_first()
        store.parts.queues.raise_starts(store.parts.log.start)
        if stop == "killed":
            shutil.copytree(written.root, root)
    if stop == "clean":
        shutil.copytree(written.root, root)
    kept = sum(r.physical_offset < LOG_FILE_BYTES for r in written.receipts)

    ask_for_cut(root, PhysicalOffset(LOG_FILE_BYTES), EPOCH)

    with open_store(root) as store:
        assert (store.parts.log.start, store.log_end) == (LOG_FILE_BYTES, LOG_FILE_BYTES)
        assert _numbers(store, root) == []
        receipts = _put(store, kept, 10)
    assert [r.queue_offset for r in receipts] == [
        r.queue_offset for r in written.receipts[kept : kept + 10]
    ]
    assert _is_fine(root)


@both_ways_to_stop
def test_nothing_is_cut_at_the_end_of_a_log(tmp_path: Path, stop: str) -> None:
    written = _write(tmp_path / "store", stop=stop)

    ask_for_cut(written.root, PhysicalOffset(written.end), EPOCH)

    with open_store(written.root) as store:
        assert store.was_cut is None
        assert _numbers(store, written.root) == list(range(COUNT))
    assert cuts(written.root) == []
    assert not list(cut_folder(written.root).iterdir())


def test_an_opening_without_an_intent_leaves_no_trace(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        assert store.was_cut is None
        store.forget_cut()

    assert not cut_folder(tmp_path).exists()
    assert cuts(tmp_path) == []


def test_a_cut_is_reported_until_it_is_forgotten(tmp_path: Path) -> None:
    written = _write(tmp_path / "store")
    ask_for_cut(written.root, written.at(100), EPOCH)
    with open_store(written.root) as store:
        cut = store.was_cut
        _put(store, 100, 50)

    with open_store(written.root) as store:
        assert store.was_cut == cut
        assert len(_numbers(store, written.root)) == 150
        store.forget_cut()
        assert store.was_cut is None

    with open_store(written.root) as store:
        assert store.was_cut is None
    assert cuts(written.root) == [cut]


def test_later_cuts_are_saved_beside_earlier_ones(tmp_path: Path) -> None:
    written = _write(tmp_path / "store", 100)
    root, found = written.root, []
    for epoch, at, topic in ((1, 60, "a"), (1, 40, "b"), (1, 40, "c"), (12, 40, "d"), (3, 20, "e")):
        ask_for_cut(root, written.at(at), epoch)
        with open_store(root) as store:
            found.append(store.was_cut)
            store.forget_cut()
            _put(store, at, 30, topic)

    assert cuts(root) == [found[n] for n in (1, 2, 0, 4, 3)]
    assert found[1] is not None
    assert found[2] is not None
    assert found[2].saved_path.name == found[1].saved_path.name + "-2"


# --- every kind of record ---------------------------------------------------------------------


def _put_every_kind(store: MessageStore, first: int) -> list[Receipt]:
    """Put a batch, delayed, timer and half messages, and what ends one; plain ones between."""
    receipts = store.put_batch([message(b"%d" % n, queue_id=2) for n in range(first, first + 5)])
    real = {"REAL_TOPIC": "orders", "REAL_QID": "0"}
    due = {"TIMER_OUT_MS": str(store._clock.now_ms() + 3_600_000)}
    for topic, queue_id, flag, properties in (
        (SCHEDULE_TOPIC, 2, 0, {"DELAY": "3", **real}),
        (TIMER_TOPIC, 0, 0, {**due, **real}),
        (HALF_TOPIC, 0, 0, real),
        ("orders", 1, SystemFlag.PREPARED, real),
        ("orders", 0, SystemFlag.COMMITTED, real),
        ("orders", 0, SystemFlag.ROLLED_BACK, real),
        ("RMQ_SYS_TRANS_OP_HALF_TOPIC", 0, 0, {"TAGS": "d"}),
    ):
        receipts.append(
            store.put(
                message(
                    b"1", topic=topic, queue_id=queue_id, properties=properties, system_flag=flag
                )
            )
        )
    return receipts


@pytest.mark.parametrize("number", range(0, 24, 2))
def test_every_kind_of_record_is_cut_with_the_tail(tmp_path: Path, number: int) -> None:
    with open_store(tmp_path) as store:
        receipts = _put_every_kind(store, 0) + _put_every_kind(store, 5)
        ends = {(q.topic, q.queue_id): q.end for q in store.queues()}

    ask_for_cut(tmp_path, PhysicalOffset(receipts[number].physical_offset), EPOCH)

    with open_store(tmp_path) as store:
        check_agreement(store, config_at(tmp_path, query_count_max=10_000))
        assert store.was_cut is not None
        with ReadOnlyStore(store.was_cut.saved_path) as tail:
            cut = {(q.topic, q.queue_id): q.start for q in tail.queues()}
        for queue, end in ends.items():
            assert store.end_of(*queue) == cut.get(queue, end)
    assert _is_fine(tmp_path)


@pytest.mark.parametrize("deleted_at", [100, 400])
def test_a_topic_deleted_in_the_tail_is_there_again(tmp_path: Path, deleted_at: int) -> None:
    with open_store(tmp_path) as store:
        receipts = _put(store, 0, deleted_at)
        store.delete_topic("orders")
        others = _put(store, 0, 300, "others")

    ask_for_cut(tmp_path, PhysicalOffset(receipts[90].physical_offset), EPOCH)

    with open_store(tmp_path) as store:
        assert _numbers(store, tmp_path) == list(range(90))
        assert store.end_of("others", 0) == 0
        assert _put(store, 0, 1)[0].queue_offset == 30
    assert others
    assert _is_fine(tmp_path)


def test_a_topic_deleted_before_the_tail_stays_deleted(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        _put(store, 0, 100)
        store.delete_topic("orders")
        others = _put(store, 0, 300, "others")

    ask_for_cut(tmp_path, PhysicalOffset(others[30].physical_offset), EPOCH)

    with open_store(tmp_path) as store:
        assert store.end_of("orders", 0) == 0
        assert store.end_of("others", 0) == 10


def test_a_queue_without_records_below_the_cut_keeps_its_numbers(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        old = _put(store, 0, 30, "rare")
        receipts = _put(store, 0, 300)
        late = _put(store, 30, 6, "rare")
        _put(store, 300, 10)
        store.parts.shape_file.raise_log_start(LOG_FILE_BYTES)
        store.parts.log.delete_first()
        store.parts.queues.raise_starts(store.parts.log.start)
    assert old[-1].end < LOG_FILE_BYTES < receipts[-1].physical_offset

    ask_for_cut(tmp_path, PhysicalOffset(late[0].physical_offset), EPOCH)

    with open_store(tmp_path) as store:
        assert (store.start_of("rare", 0), store.end_of("rare", 0)) == (10, 10)
        assert [r.queue_offset for r in _put(store, 30, 6, "rare")] == [10, 10, 10, 11, 11, 11]


def test_ends_of_queues_that_are_being_rebuilt_are_lowered(tmp_path: Path) -> None:
    written = _write(tmp_path / "store")
    root = written.root
    RebuildNote(root / "orbitmq").write({("orders", n): COUNT // 3 for n in range(3)})  # type: ignore[misc]  # plain numbers

    ask_for_cut(root, written.at(300), EPOCH)

    with open_store(root) as store:
        assert _numbers(store, root) == list(range(300))
        assert _put(store, 0, 1)[0].queue_offset == 100


# --- what else points into the log ------------------------------------------------------------


def test_small_files_are_lowered(tmp_path: Path) -> None:
    written = _write(tmp_path / "store")
    root, at = written.root, written.at(100)
    checkpoint = Checkpoint.read(root / "checkpoint")

    ask_for_cut(root, at, EPOCH)

    with open_store(root) as store:
        kept_ms = store.store_ms_of("orders", 0, 33)
        assert kept_ms is not None
        assert read_watermark(root / "orbitmq") == at
    found, progress = Checkpoint.read(root / "checkpoint"), read_progress(root / "orbitmq")
    assert found.log_ms <= kept_ms <= checkpoint.log_ms
    assert found.index_ms <= kept_ms
    assert progress is not None
    assert (progress.flushed, progress.dispatched) == (at, at)


def test_the_key_index_is_not_rebuilt(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    written = _write(tmp_path / "store")
    names = sorted(path.name for path in (written.root / "index").iterdir())

    ask_for_cut(written.root, written.at(100), EPOCH)

    with open_store(written.root) as store:
        assert _numbers(store, written.root) == list(range(100))
    kept = sorted(path.name for path in (written.root / "index").iterdir())
    assert kept == names[: len(kept)]
    assert 0 < len(kept) < len(names)
    assert "rebuilding" not in caplog.text


def test_timers_are_taken_in_again_without_those_of_the_tail(tmp_path: Path) -> None:
    clock = ManualClock(1_700_000_000_000)
    due = {"TIMER_OUT_MS": str(clock.now_ms() + 60_000), "REAL_TOPIC": "orders", "REAL_QID": "0"}
    with open_store(tmp_path, clock=clock) as store:
        receipts = [
            store.put(message(b"%d" % n, topic=TIMER_TOPIC, properties=due)) for n in range(10)
        ]
        with _timers(store, tmp_path, clock) as timers:
            timers.take_in(100)

    ask_for_cut(tmp_path, PhysicalOffset(receipts[6].physical_offset), EPOCH)

    with open_store(tmp_path, clock=clock) as store:
        assert not (tmp_path / "timerwheel").exists()
        assert not (tmp_path / "config" / "timercheck").exists()
        with _timers(store, tmp_path, clock) as timers:
            assert timers.take_in(100) == 6
            assert timers.count(timers.chains.last_slot_ms) == 6


@contextmanager
def _timers(store: MessageStore, root: Path, clock: ManualClock) -> Iterator[Timers]:
    config = config_at(root)
    timers = Timers(store, root, file_bytes=52_000, modes=config.modes, clock=clock)
    timers.open()
    yield timers
    timers.close()


# --- the saved tail ---------------------------------------------------------------------------


def test_the_saved_tail_is_a_store_that_has_just_the_cut_messages(tmp_path: Path) -> None:
    written = _write(tmp_path / "store")
    ask_for_cut(written.root, written.at(100), EPOCH)
    with open_store(written.root) as store:
        assert store.was_cut is not None
        saved = store.was_cut.saved_path

    with ReadOnlyStore(saved) as tail:
        found = [
            (bounds.queue_id, message.queue_offset, message.body)
            for bounds in tail.queues("orders")
            for message in tail.messages("orders", bounds.queue_id, bounds.start, COUNT)
        ]
        records = [decode_record(record) for _, record in tail.records()]
        assert verify(tail).is_fine

    expected = [(n % 3, n // 3, b"%d" % n + bytes(200)) for n in range(100, COUNT)]
    assert sorted(found) == sorted(expected)
    assert [m.physical_offset for m in records] == [
        r.physical_offset for r in written.receipts[100:]
    ]


def test_a_broker_can_open_the_saved_tail(tmp_path: Path) -> None:
    written = _write(tmp_path / "store")
    ask_for_cut(written.root, written.at(100), EPOCH)
    with open_store(written.root) as store:
        assert store.was_cut is not None
        saved = store.was_cut.saved_path

    with open_store(saved) as store:
        assert store.end_of("orders", 0) == written.receipts[COUNT - 2].queue_offset + 1
        assert store.read("orders", 1, 33).records


# --- interrupted ------------------------------------------------------------------------------

# Calls that change a disk, or wait for it.
_DISK_CALLS = (
    "pwrite", "fsync", "fdatasync", "unlink", "rename", "replace", "truncate", "mkdir", "rmdir",
)  # fmt: skip


def _snapshots(
    monkeypatch: pytest.MonkeyPatch, root: Path, folder: Path, work: Callable[[], None]
) -> list[Path]:
    """Do something, and copy a folder before every change to the disk, as a kill would leave it."""
    found: list[Path] = []
    is_copying = False

    def watched(call: Callable[..., Any]) -> Callable[..., Any]:
        def copy_first(*args: Any, **kwargs: Any) -> Any:
            nonlocal is_copying
            if not is_copying:
                is_copying = True
                found.append(folder / f"{len(found)}")
                shutil.copytree(root, found[-1])
                is_copying = False
            return call(*args, **kwargs)

        return copy_first

    with monkeypatch.context() as patches:
        for name in _DISK_CALLS:
            patches.setattr(os, name, watched(getattr(os, name)))
        work()
    return found


@both_ways_to_stop
@pytest.mark.parametrize("kept", [0, 20, 90])
def test_a_cut_interrupted_anywhere_is_completed_by_the_next_opening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: str, kept: int
) -> None:
    count = 300
    written = _write(tmp_path / "store", count, stop=stop)
    root, at = written.root, written.at(kept)
    before = written.content(at, written.end)
    ask_for_cut(root, at, EPOCH)

    snapshots = _snapshots(monkeypatch, root, tmp_path / "kills", lambda: open_store(root).close())

    assert len(snapshots) > 40
    for snapshot in snapshots:
        with open_store(snapshot) as store:
            assert _numbers(store, snapshot) == list(range(kept)), snapshot
            assert store.was_cut is not None
            assert cuts(snapshot) == [store.was_cut]
            _check_saved(written, store.was_cut, at, before)
            store.forget_cut()
        assert _is_fine(snapshot), snapshot


def test_what_another_broker_appended_to_a_half_done_cut_is_saved_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = _write(tmp_path / "store", 100)
    root = written.root
    ask_for_cut(root, written.at(40), EPOCH)
    snapshots = _snapshots(monkeypatch, root, tmp_path / "kills", lambda: open_store(root).close())
    half_done = next(snapshot for snapshot in snapshots if cuts(snapshot))
    shutil.move(cut_folder(half_done), tmp_path / "cut")
    with open_store(half_done) as store:
        _put(store, 100, 10)
    shutil.move(tmp_path / "cut", cut_folder(half_done))

    with open_store(half_done) as store:
        assert _numbers(store, half_done) == list(range(40))

    first, second = cuts(half_done)
    assert (first.end, second.saved_path.name) == (written.end, first.saved_path.name + "-2")
    assert second.end > first.end


# --- refused ----------------------------------------------------------------------------------


def _image(root: Path) -> dict[str, bytes]:
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


@both_ways_to_stop
@pytest.mark.parametrize("where", ["above the end", "below the start", "in a record", "in a blank"])
def test_a_cut_at_another_place_is_refused_and_changes_nothing(
    tmp_path: Path, where: str, stop: str
) -> None:
    written = _write(tmp_path / "first")
    with open_store(written.root) as store:
        store.parts.shape_file.raise_log_start(LOG_FILE_BYTES)
        store.parts.log.delete_first()
        store.parts.queues.raise_starts(store.parts.log.start)
    root = written.root
    if stop == "killed":
        (root / "abort").write_text("1")
    at = {
        "above the end": written.end + 1,
        "below the start": written.at(10),
        "in a record": written.at(300) + 1,
        "in a blank": 2 * LOG_FILE_BYTES - 4,
    }[where]
    ask_for_cut(root, PhysicalOffset(at), EPOCH)
    before = _image(root)

    with pytest.raises(StoreError, match=f"cut at {at} for epoch {EPOCH}, but") as refused:
        open_store(root)

    assert "Nothing was changed" in str(refused.value)
    assert _image(root) == before


def test_a_damaged_intent_is_refused(tmp_path: Path) -> None:
    written = _write(tmp_path / "store", 10)
    ask_for_cut(written.root, written.at(5), EPOCH)
    intent = cut_folder(written.root) / "intent"
    intent.write_bytes(intent.read_bytes().replace(b":7", b":8"))

    with pytest.raises(StoreDamagedError, match="checksum"):
        open_store(written.root)

    intent.unlink()
    with open_store(written.root) as store:
        assert len(_numbers(store, written.root)) == 10


@pytest.mark.parametrize(("at", "epoch"), [(-1, 1), (0, 0), (0, 2**63)])
def test_a_cut_that_makes_no_sense_cannot_be_asked_for(tmp_path: Path, at: int, epoch: int) -> None:
    with pytest.raises(StoreError, match="cannot be cut"):
        ask_for_cut(tmp_path, PhysicalOffset(at), epoch)

    assert not cut_folder(tmp_path).exists()


def test_a_full_disk_refuses_the_opening_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = _write(tmp_path / "store")
    root = written.root
    ask_for_cut(root, written.at(100), EPOCH)
    before = _image(root)
    room = 20_000
    pwrite = os.pwrite

    def full(number: int, content: bytes, at: int) -> int:
        nonlocal room
        if ".tmp/" in str(Path(f"/proc/self/fd/{number}").readlink()):
            room -= len(content)
            if room < 0:
                raise OSError(28, "No space left on device")
        return pwrite(number, content, at)

    with monkeypatch.context() as patches:
        patches.setattr(os, "pwrite", full)
        with pytest.raises(DiskFullError, match=r"no room to save .* bytes of the log"):
            open_store(root)

    assert _image(root) == before
    with open_store(root) as store:
        assert _numbers(store, root) == list(range(100))


def _is_fine(root: Path) -> bool:
    with ReadOnlyStore(root) as store:
        found = verify(store, index_slots=16)
    assert found.is_fine, found.findings.problems
    return True
