from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from orbitmq.model.queues import PhysicalOffset
from orbitmq.store.opening.checkpoint import Checkpoint
from orbitmq.store.readonly.log_files import ReadOnlyLog
from orbitmq.store.readonly.visible_end import Writer, find_visible_end, read_state
from tests.unit.store.written_stores import (
    LOG_FILE_BYTES,
    T0,
    WriterProcess,
    as_rocketmq,
    change,
    fill,
)


def visible_end(
    root: Path, *, known: int | None = None, hints: Sequence[int] = ()
) -> PhysicalOffset:
    return find_visible_end(
        read_state(root),
        ReadOnlyLog([root / "commitlog"]),
        known=PhysicalOffset(known) if known is not None else None,
        hints=[PhysicalOffset(hint) for hint in hints],
    )


def watermark(root: Path) -> int:
    return int.from_bytes((root / "orbitmq" / "watermark").read_bytes()[:8])


def first_stored_from(root: Path, store_ms: int) -> int:
    log = ReadOnlyLog([root / "commitlog"])
    for chunk in log.walk(0, log.room_end, on_damage=lambda *_: log.room_end):
        at = 0
        while at < chunk.found.position:
            if log.store_ms(chunk.offset + at) >= store_ms:
                return chunk.offset + at
            at += int.from_bytes(chunk.content[at : at + 4])
    raise AssertionError("nothing is so new")


def test_a_store_of_ours_ends_at_its_watermark(tmp_path: Path) -> None:
    fill(tmp_path, 300)

    state = read_state(tmp_path)

    assert state.written_by is Writer.ORBITMQ
    assert state.is_clean
    assert visible_end(tmp_path) == state.watermark == watermark(tmp_path)


def test_a_store_of_ours_that_is_open_ends_at_its_watermark(tmp_path: Path) -> None:
    with WriterProcess(tmp_path) as writer:
        told = writer.ask(first=0, count=30)["end"]
        # Appended, and not flushed before anybody asks for it.
        writer.ask(first=30, count=30, confirm=False)
        state = read_state(tmp_path)

        assert state.written_by is Writer.ORBITMQ
        assert not state.is_clean
        assert visible_end(tmp_path) >= told


def test_a_watermark_beyond_the_files_counts_up_to_their_end(tmp_path: Path) -> None:
    fill(tmp_path)
    (tmp_path / "commitlog" / f"{5 * LOG_FILE_BYTES:020d}").unlink()

    assert visible_end(tmp_path) == 5 * LOG_FILE_BYTES


def test_a_rocketmq_store_that_was_stopped_cleanly_is_read_to_its_end(tmp_path: Path) -> None:
    fill(tmp_path, 300)
    end = watermark(tmp_path)
    as_rocketmq(tmp_path)

    assert read_state(tmp_path).written_by is Writer.ROCKETMQ
    assert visible_end(tmp_path) == end
    assert visible_end(tmp_path, hints=[LOG_FILE_BYTES]) == end
    assert visible_end(tmp_path, known=end) == end


def test_an_open_rocketmq_store_ends_before_what_is_not_known_flushed(tmp_path: Path) -> None:
    fill(tmp_path, 300)
    as_rocketmq(tmp_path, unclean=True, flushed_ms=T0 + 2500)

    end = visible_end(tmp_path)

    assert end == first_stored_from(tmp_path, T0 + 2500)
    # A hint that is too new is passed over, and an earlier look is gone on from.
    assert visible_end(tmp_path, hints=[end, 0]) == end
    assert visible_end(tmp_path, known=0) == end
    assert visible_end(tmp_path, known=end) == end


def test_an_open_rocketmq_store_without_a_checkpoint_shows_nothing(tmp_path: Path) -> None:
    fill(tmp_path, 30)
    as_rocketmq(tmp_path, unclean=True)
    (tmp_path / "checkpoint").unlink()

    assert visible_end(tmp_path) == 0


def test_records_that_rocketmq_left_after_its_end_are_not_taken_for_new(tmp_path: Path) -> None:
    # Given three records of one size, of which the first was written again after a crash.
    fill(tmp_path, 10)
    as_rocketmq(tmp_path)
    log = ReadOnlyLog([tmp_path / "commitlog"])
    size = int.from_bytes(log.read(0, 4))
    change(tmp_path / "commitlog" / f"{0:020d}", 56, (T0 + 60_000).to_bytes(8))

    assert visible_end(tmp_path) == size


def test_records_that_say_they_lie_elsewhere_end_the_log(tmp_path: Path) -> None:
    fill(tmp_path, 10)
    as_rocketmq(tmp_path)
    log = ReadOnlyLog([tmp_path / "commitlog"])
    size = int.from_bytes(log.read(0, 4))
    change(tmp_path / "commitlog" / f"{0:020d}", size + 28, (1 << 40).to_bytes(8))

    assert visible_end(tmp_path) == size


def test_a_checkpoint_that_our_mark_does_not_know_is_rocketmqs(tmp_path: Path) -> None:
    # Given a store of ours that a RocketMQ broker took over and still has open.
    fill(tmp_path, 300)
    ours = watermark(tmp_path)
    mark = (tmp_path / "orbitmq" / "marks").read_bytes()
    fill(tmp_path, 300, first=300)
    (tmp_path / "orbitmq" / "marks").write_bytes(mark)
    (tmp_path / "orbitmq" / "watermark").write_bytes(ours.to_bytes(8) * 2)
    checkpoint = Checkpoint.read(tmp_path / "checkpoint")
    checkpoint.log_ms = T0 + 5000
    checkpoint.write(tmp_path / "checkpoint")
    (tmp_path / "abort").write_text("1")

    assert read_state(tmp_path).written_by is Writer.ROCKETMQ
    assert visible_end(tmp_path) == first_stored_from(tmp_path, T0 + 5000) > ours

    # What was visible stays so, however far the checkpoint lags.
    checkpoint.log_ms = T0 + 1000
    checkpoint.write(tmp_path / "checkpoint")
    assert visible_end(tmp_path) == ours

    (tmp_path / "abort").unlink()
    assert visible_end(tmp_path) > first_stored_from(tmp_path, T0 + 5980)


def test_a_fresh_store_is_empty(tmp_path: Path) -> None:
    assert visible_end(tmp_path) == 0
