"""Accepting a loss: what goes, what stays, and that the store is whole afterwards."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from orbitmq.errors import StoreDamagedError, StoreError, StoreLockedError
from orbitmq.record.decode import decode_record
from orbitmq.store.config import FlushMode
from orbitmq.store.message_store import MessageStore
from orbitmq.store.readonly.readonly_store import ReadOnlyStore
from orbitmq.store.tools.accepting_loss import Loss, accept_loss
from orbitmq.store.tools.rebuilding import rebuild
from orbitmq.store.tools.verification import verify
from tests.unit.store.written_stores import (
    INDEX_SLOTS,
    LOG_FILE_BYTES,
    as_rocketmq,
    change,
    draft,
    fill,
    open_store,
    snapshot,
)

COUNT = 1000
# Topic, queue, number in the queue.
Place = tuple[str, int, int]


def places(root: Path) -> dict[Place, tuple[int, int]]:
    """Where every message is."""
    with ReadOnlyStore(root) as store:
        return {
            (found.topic, found.queue_id, found.queue_offset): (offset, len(record))
            for offset, record in store.records()
            for found in (decode_record(record),)
        }


def damage(root: Path, offset: int, content: bytes) -> None:
    """Overwrite bytes of the log, also across files."""
    while content:
        at = offset % LOG_FILE_BYTES
        part, content = content[: LOG_FILE_BYTES - at], content[LOG_FILE_BYTES - at :]
        change(root / "commitlog" / f"{offset - at:020d}", at, part)
        offset += len(part)


def read_all(store: MessageStore) -> dict[Place, bytes]:
    """Everything that a consumer gets from the start of each queue."""
    found: dict[Place, bytes] = {}
    for queue in store.queues():
        offset = int(queue.start)
        while offset < queue.end:
            read = store.read(queue.topic, queue.queue_id, offset)
            assert read.next_offset > offset, "a consumer sticks"
            for record in read.records:
                one = decode_record(record)
                found[one.topic, one.queue_id, one.queue_offset] = one.body
            offset = read.next_offset
    return found


def expected(gone: set[Place]) -> dict[Place, bytes]:
    numbers: dict[tuple[str, int], int] = {}
    found: dict[Place, bytes] = {}
    for number in range(COUNT):
        one = draft(number)
        key = (one.topic, one.queue_id)
        found[(*key, numbers.setdefault(key, 0))] = one.body
        numbers[key] += 1
    return {place: body for place, body in found.items() if place not in gone}


def lost_places(loss: Loss) -> set[Place]:
    return {
        (lost.topic, lost.queue_id, number)
        for lost in loss.queues
        for number in range(lost.first, lost.last + 1)
    }


def check_fine(root: Path) -> list[str]:
    with ReadOnlyStore(root) as store:
        found = verify(store, index_slots=INDEX_SLOTS)
    assert found.is_fine, found.findings.problems
    return found.findings.notes


def check_whole(root: Path, gone: set[Place]) -> None:
    """The store opens, after a clean stop and a crash, and has everything but what is gone."""
    check_fine(root)
    crashed = root.with_name("crashed")
    shutil.copytree(root, crashed)
    (crashed / "abort").write_text("1")
    ends: dict[tuple[str, int], int] = {}
    for folder in (crashed, root):
        with open_store(folder) as store:
            assert read_all(store) == expected(gone)
            ends = {(q.topic, q.queue_id): int(q.end) for q in store.queues()}
            receipt = store.put(draft(0))
            assert receipt.queue_offset == ends["topic0", 0], "numbers continue"
        check_fine(folder)
    with ReadOnlyStore(root) as reader:
        shown = {
            (m.topic, m.queue_id, m.queue_offset)
            for bounds in reader.queues()
            for m in reader.messages(bounds.topic, bounds.queue_id, bounds.start, 10_000)
        }
        assert shown == {*expected(gone), ("topic0", 0, ends["topic0", 0])}
    rebuild(root)
    check_fine(root)
    with open_store(root) as store:
        found = read_all(store)
        del found["topic0", 0, ends["topic0", 0]]
        assert found == expected(gone)


def test_a_flipped_body_costs_one_message(tmp_path: Path) -> None:
    root = tmp_path / "store"
    fill(root)
    lost = ("topic1", 0, 245)
    offset, size = places(root)[lost]
    damage(root, offset + 90, b"!!")
    (root / "abort").write_text("1")
    with pytest.raises(StoreDamagedError, match=f"accept-loss DIR --at {offset};"):
        open_store(root)
    before = snapshot(root)

    shown = accept_loss(root, offset, confirmed=False)
    assert {n: c for n, c in snapshot(root).items() if n != "lock"} == {
        n: c for n, c in before.items() if n != "lock"
    }
    done = accept_loss(root, offset, confirmed=True)

    assert lost_places(shown) == lost_places(done) == {lost}
    assert (shown.start, shown.end, shown.messages) == (offset, offset + size, 1)
    assert (shown.other_bytes, shown.new_end, shown.kept_in) == (0, None, [])
    path = root / "commitlog" / f"{offset // LOG_FILE_BYTES * LOG_FILE_BYTES:020d}"
    assert shown.files == [str(path)]
    (kept,) = done.kept_in
    original = before[path.relative_to(root).as_posix()][2]
    at = offset % LOG_FILE_BYTES
    assert Path(kept).read_bytes() == original[at : at + size]
    assert json.loads(Path(f"{kept}.json").read_text())["messages"] == 1
    assert any("1 records replace bytes whose loss was accepted" in n for n in check_fine(root))
    check_whole(root, {lost})


@pytest.mark.parametrize("files", [1, 2])
def test_a_hole_with_records_after_it_costs_only_its_contents(tmp_path: Path, files: int) -> None:
    root = tmp_path / "store"
    fill(root)
    known = places(root)
    start = LOG_FILE_BYTES + 10_000
    end = files * LOG_FILE_BYTES + 30_000
    damage(root, start, b"\xff" * (end - start))
    gone = {p for p, (offset, size) in known.items() if offset + size > start and offset < end}
    first = min(known[place][0] for place in gone)

    loss = accept_loss(root, first, confirmed=True)

    assert lost_places(loss) == gone
    assert len(loss.files) == len(loss.kept_in) == files
    assert loss.new_end is None
    check_whole(root, gone)


def test_a_file_of_zeros_is_filled(tmp_path: Path) -> None:
    root = tmp_path / "store"
    fill(root)
    gone = {place for place, (offset, _) in places(root).items() if offset // LOG_FILE_BYTES == 2}
    damage(root, 2 * LOG_FILE_BYTES, bytes(LOG_FILE_BYTES))

    loss = accept_loss(root, 2 * LOG_FILE_BYTES, confirmed=True)

    assert lost_places(loss) == gone
    check_whole(root, gone)


@pytest.mark.parametrize("content", [b"\0", b"\xff"])
def test_damage_up_to_the_end_keeps_the_numbers_that_queues_know(
    tmp_path: Path, content: bytes
) -> None:
    root = tmp_path / "store"
    fill(root)
    known = places(root)
    end = max(offset + size for offset, size in known.values())
    start = end - 5000
    damage(root, start, content * (end - start))
    gone = {place for place, (offset, size) in known.items() if offset + size > start}
    first = min(known[place][0] for place in gone)

    loss = accept_loss(root, first, confirmed=True)

    assert lost_places(loss) == gone
    assert (loss.end, loss.new_end) == (end, end)
    check_whole(root, gone)


def test_damage_up_to_the_end_that_no_queue_knows_is_cut_off(tmp_path: Path) -> None:
    root = tmp_path / "store"
    fill(root)
    known = places(root)
    first = sorted(offset for offset, _ in known.values())[-10]
    end = max(offset + size for offset, size in known.values())
    damage(root, first, bytes(end - first))
    shutil.rmtree(root / "consumequeue")

    loss = accept_loss(root, first, confirmed=True)

    assert (loss.messages, loss.new_end, loss.other_bytes) == (0, first, end - first)
    with open_store(root) as store:
        assert store.log_end == first
        assert len(read_all(store)) == COUNT - 10
        store.put(draft(0))
    check_fine(root)


def test_numbers_are_kept_where_entries_were_not_on_disk_yet(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with open_store(root, flush_mode=FlushMode.SYNC, queue_flush_interval_ms=60_000) as store:
        for number in range(COUNT):
            store.append(draft(number))
        store.confirm([store.append(draft(COUNT))])
        shutil.copytree(root, tmp_path / "copy")
    root = tmp_path / "copy"
    (root / "lock").unlink()
    known = places(root)
    with ReadOnlyStore(root) as reader:
        progress = reader.state.progress
        assert progress is not None
        assert progress.dispatched == 0
        assert progress.flushed == reader.end
    start, end = 20_000, 22_000
    damage(root, start, b"\xff" * (end - start))
    gone = {p for p, (offset, size) in known.items() if offset + size > start and offset < end}
    first = min(known[place][0] for place in gone)

    loss = accept_loss(root, first, confirmed=True)

    assert lost_places(loss) == gone
    with open_store(root) as store:
        found = read_all(store)
        assert {p: found[p] for p in expected(gone)} == expected(gone)
        assert not gone & set(found)
    check_fine(root)


@pytest.mark.parametrize("tail", [False, True])
def test_a_store_that_rocketmq_wrote_is_made_whole_too(tmp_path: Path, *, tail: bool) -> None:
    root = tmp_path / "store"
    fill(root)
    known = places(root)
    offsets = sorted(known.values())
    first, size = offsets[-500]
    size = sum(offsets[-1]) - first if tail else size
    as_rocketmq(root, unclean=True)
    damage(root, first, b"\xff" * size)
    gone = (
        {place for place, found in known.items() if found[0] >= first}
        if tail
        else {place for place, found in known.items() if found[0] == first}
    )
    with pytest.raises(StoreDamagedError, match=f"--at {first};"):
        open_store(root)

    loss = accept_loss(root, first, confirmed=True)

    assert lost_places(loss) == gone
    with open_store(root) as store:
        assert read_all(store) == expected(gone)


def test_damage_is_accepted_only_where_it_begins(tmp_path: Path) -> None:
    fill(tmp_path)
    known = sorted(places(tmp_path).values())
    damage(tmp_path, known[50][0] + 90, b"!!")

    with pytest.raises(StoreError, match=f"damage in .* starts at: {known[50][0]}"):
        accept_loss(tmp_path, known[51][0], confirmed=True)
    with pytest.raises(StoreError, match="was not flushed"):
        accept_loss(tmp_path, 10**9, confirmed=True)
    with pytest.raises(StoreError, match="is not a folder"):
        accept_loss(tmp_path / "nowhere", 0, confirmed=True)
    assert not (tmp_path / "orbitmq" / "lost").exists()


def test_a_store_in_use_is_left_alone(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.put(draft(0))
        with pytest.raises(StoreLockedError):
            accept_loss(tmp_path, 0, confirmed=True)


def test_bytes_are_kept_again_under_another_name(tmp_path: Path) -> None:
    root = tmp_path / "store"
    fill(root)
    offset, _ = sorted(places(root).values())[50]
    for _ in range(2):
        damage(root, offset + 88, b"!!")
        accept_loss(root, offset, confirmed=True)

    names = sorted(path.name for path in (root / "orbitmq" / "lost").iterdir())

    name = f"{offset:020d}"
    assert names == sorted([name, f"{name}-2", f"{name}.json", f"{name}.json-2"])
    check_fine(root)
