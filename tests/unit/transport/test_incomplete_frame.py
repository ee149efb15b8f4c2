"""Frames that arrive in pieces, and the budget they share."""

from __future__ import annotations

import random

import pytest

from orbitmq.errors import FrameTooLargeError, ProtocolError
from orbitmq.protocol.command import Command
from orbitmq.transport.incomplete_frame import (
    KEPT_BYTES_FREE,
    PIECE_BYTES_MIN,
    IncompleteFrame,
)
from orbitmq.transport.limits import ByteBudget

LIMIT = 1_000_000


@pytest.fixture
def budget() -> ByteBudget:
    return ByteBudget(50_000)


@pytest.fixture
def incomplete(budget: ByteBudget) -> IncompleteFrame:
    return IncompleteFrame(budget, LIMIT)


def _frame(body_bytes: int, **fields: str) -> bytes:
    return Command(code=10, opaque=3, fields=fields, body=bytes(body_bytes)).encode()


def test_a_frame_is_complete_with_its_last_byte(incomplete: IncompleteFrame) -> None:
    frame = _frame(100)
    incomplete.begin(frame[:2])
    # The length field comes first; then the frame as a whole.
    incomplete.add(frame[2:4])
    assert incomplete.is_complete
    head = incomplete.take()
    incomplete.begin(head)

    incomplete.add(frame[4:-1])
    assert not incomplete.is_complete
    incomplete.add(frame[-1:] + b"next")
    assert incomplete.is_complete

    assert incomplete.take() == frame + b"next"
    assert not incomplete.kept_bytes


def test_an_invalid_length_is_refused_at_its_fourth_byte(
    incomplete: IncompleteFrame,
) -> None:
    with pytest.raises(FrameTooLargeError):
        incomplete.begin((LIMIT + 1).to_bytes(4, "big"))
    with pytest.raises(ProtocolError):
        incomplete.begin(bytes(4))

    assert not incomplete.kept_bytes


def test_few_bytes_are_free_and_many_are_counted_once(
    incomplete: IncompleteFrame, budget: ByteBudget
) -> None:
    frame = _frame(30_000)
    incomplete.begin(frame[:KEPT_BYTES_FREE])
    assert incomplete.count() is None
    assert budget.taken == 0

    for start in range(KEPT_BYTES_FREE, 24_096, 1000):
        incomplete.add(frame[start : start + 1000])
        assert incomplete.count() is None
    assert budget.taken == 20_000
    incomplete.take()

    assert budget.taken == 0


def test_a_frame_over_the_budget_is_refused_and_its_rest_skipped(
    incomplete: IncompleteFrame, budget: ByteBudget
) -> None:
    frame = _frame(100_000)
    incomplete.begin(frame[:40_000])
    assert incomplete.count() is None
    incomplete.add(frame[40_000:60_000])

    refused = incomplete.count()

    assert refused is not None
    assert (refused.code, refused.opaque, refused.body) == (10, 3, b"")
    assert budget.taken == 0
    assert not incomplete.kept_bytes
    assert incomplete.skip(frame[60_000:90_000]) == b""
    assert incomplete.skip_bytes == len(frame) - 90_000
    assert incomplete.skip(frame[90_000:] + b"next") == b"next"
    assert incomplete.skip_bytes == 0


def test_a_refused_frame_without_a_whole_header_cannot_be_answered(
    incomplete: IncompleteFrame, budget: ByteBudget
) -> None:
    assert budget.take(50_000)
    incomplete.begin(_frame(0, large="x" * 20_000)[:10_000])

    with pytest.raises(ProtocolError, match="budget of 50000 for all connections is exhausted"):
        incomplete.count()

    incomplete.drop()
    assert budget.taken == 50_000


def test_frames_after_a_complete_one_cannot_be_refused_by_one_answer(
    incomplete: IncompleteFrame, budget: ByteBudget
) -> None:
    assert budget.take(50_000)
    incomplete.begin(_frame(100) + _frame(10_000))

    with pytest.raises(ProtocolError):
        incomplete.count()
    incomplete.drop()


def test_a_refused_frame_with_a_broken_header_is_bad_input(
    incomplete: IncompleteFrame, budget: ByteBudget
) -> None:
    assert budget.take(50_000)
    header = b"{broken"
    length = 4 + len(header) + 20_000
    incomplete.begin(
        length.to_bytes(4, "big") + len(header).to_bytes(4, "big") + header + bytes(10_000)
    )

    with pytest.raises(ProtocolError):
        incomplete.count()
    incomplete.drop()
    assert budget.taken == 50_000


@pytest.mark.parametrize("seed", range(5))
def test_pieces_of_any_size_become_the_frame_they_were(
    incomplete: IncompleteFrame, seed: int
) -> None:
    rng = random.Random(seed)
    frame = Command(code=10, body=rng.randbytes(300_000)).encode()
    at = rng.randrange(8, 50_000)
    incomplete.begin(frame[:at])
    while at < len(frame):
        size = rng.choice([0, 1, 100, PIECE_BYTES_MIN - 1, PIECE_BYTES_MIN, 50_000])
        incomplete.add(frame[at : at + size])
        at += size
        assert incomplete.is_complete == (at >= len(frame))

    assert incomplete.take() == frame
    assert not incomplete.kept_bytes


def test_a_frame_that_arrives_byte_by_byte_is_kept_in_few_pieces(
    incomplete: IncompleteFrame,
) -> None:
    frame = _frame(10 * PIECE_BYTES_MIN)
    incomplete.begin(frame[:8])
    for at in range(8, len(frame)):
        incomplete.add(frame[at : at + 1])

    assert len(incomplete._pieces) <= 11
    assert incomplete.take() == frame
