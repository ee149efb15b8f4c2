"""The compiled writer of messages: what it refuses to read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

# Loaded as a value without a type: mypy reads the source, this is what was compiled from it.
native: Any = pytest.importorskip(
    "orbitmq.spark.writing.compiled.messages_cython",
    reason="not compiled; run: pip install --editable .",
    exc_type=ImportError,
)


def _offsets(*numbers: int) -> bytes:
    return np.array(numbers, np.int32).tobytes()


def _write(rows: int, bodies: object, **changes: Any) -> Any:
    named = {"flags": None, "entries": [], "rest": None} | changes
    return native.write_messages(
        rows, bodies, named["flags"], b"I\x01", 0, b"\x02M\x01", 0, named["entries"], named["rest"]
    )


GOOD = (b"", _offsets(0, 3, 6), 0, b"onetwo")


@pytest.mark.parametrize(
    "bad",
    [
        (b"", _offsets(0, 3), 0, b"onetwo"),
        (b"", _offsets(0, 3, 6), 1, b"onetwo"),
        (b"", _offsets(0, 3, 6), -1, b"onetwo"),
        (b"", _offsets(0, 3, 7), 0, b"onetwo"),
        (b"", _offsets(0, 9, 6), 0, b"onetwo"),
        (b"", _offsets(-1, 3, 6), 0, b"onetwo"),
        (b"", b"", 0, b""),
    ],
)
def test_offsets_that_leave_their_bytes_are_refused(bad: object) -> None:
    _write(2, GOOD, entries=[GOOD], rest=GOOD)

    for arguments in ({"bodies": bad}, {"bodies": GOOD, "entries": [GOOD, bad]}, {"bodies": GOOD, "rest": bad}):  # fmt: skip
        with pytest.raises(ValueError, match="offsets"):
            _write(2, **arguments)


def test_too_few_flags_and_rows_below_zero_are_refused() -> None:
    with pytest.raises(ValueError, match="flags"):
        _write(2, GOOD, flags=bytes(15))
    with pytest.raises(ValueError, match="offsets"):
        _write(-1, GOOD)


def test_more_bytes_than_offsets_can_say_are_refused() -> None:
    # The same megabyte for every row, so that no memory is needed for more.
    rows = 2100
    offsets = np.tile(np.array([0, 1 << 20], np.int32), rows)[: rows + 1]
    content = bytes(1 << 20)

    with pytest.raises((OverflowError, ValueError)):
        _write(rows, (b"", offsets.tobytes(), 0, content))
