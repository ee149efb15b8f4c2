"""Marks that may lag and never lead."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from orbitmq.model.queues import PhysicalOffset
from orbitmq.store.opening.checkpoint import Checkpoint
from orbitmq.store.opening.marks import Mark, Marks, read_mark

MARK = Mark(
    flushed=PhysicalOffset(100),
    dispatched=PhysicalOffset(90),
    index_name=20260101000000000,
    index_next=7,
    queue_count=3,
    checkpoint_before=1,
    checkpoint_after=2,
)


def test_a_mark_is_read_back(tmp_path: Path) -> None:
    marks = Marks(tmp_path / "orbitmq")
    assert not marks.is_present

    marks.write(MARK)
    marks.close()

    again = Marks(tmp_path / "orbitmq")
    assert again.is_present
    assert again.mark == MARK
    assert read_mark(tmp_path / "orbitmq") == MARK
    assert read_mark(tmp_path / "nowhere") is None


def test_raising_the_flushed_offset_keeps_the_rest_and_never_lowers_it(tmp_path: Path) -> None:
    marks = Marks(tmp_path)
    marks.write(MARK)

    marks.raise_flushed(PhysicalOffset(200))
    marks.raise_flushed(PhysicalOffset(150))

    assert read_mark(tmp_path) == replace(MARK, flushed=PhysicalOffset(200))


def test_a_torn_slot_leaves_the_one_before(tmp_path: Path) -> None:
    marks = Marks(tmp_path)
    marks.write(MARK)
    before = (tmp_path / "marks").read_bytes()
    marks.raise_flushed(PhysicalOffset(200))
    after = (tmp_path / "marks").read_bytes()
    changed = [at for at in range(len(after)) if after[at : at + 1] != before[at : at + 1]]

    for at in range(changed[0], changed[-1]):
        torn = before.ljust(len(after), b"\0")
        (tmp_path / "marks").write_bytes(after[: at + 1] + torn[at + 1 :])

        assert read_mark(tmp_path) in (MARK, replace(MARK, flushed=PhysicalOffset(200)))


def test_a_file_of_zeros_or_garbage_is_no_mark(tmp_path: Path) -> None:
    for content in (b"", bytes(1024), b"\xff" * 1024, b"x" * 100):
        (tmp_path / "marks").write_bytes(content)

        assert read_mark(tmp_path) is None
        assert not Marks(tmp_path).is_present


def test_a_mark_knows_the_checkpoint_it_was_written_with_and_the_one_before() -> None:
    before, after, other = (Checkpoint(log_ms=ms, is_present=True) for ms in (1_000, 2_000, 3_000))
    mark = replace(MARK, checkpoint_before=before.fingerprint, checkpoint_after=after.fingerprint)

    assert mark.knows(before)
    assert mark.knows(after)
    assert not mark.knows(other)
    assert mark.knows(Checkpoint())
