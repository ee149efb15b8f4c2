"""Messages made of columns: the plain form, and what both forms are compared by."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import strategies as st

from orbitmq.record.batch import BatchedMessage, decode_batch
from orbitmq.spark.writing.message_parts import MessageParts, messages_of
from orbitmq.spark.writing.row_errors import RowRefused


def parts(rows: list[bytes], **changes: Any) -> MessageParts:
    """Parts with nothing but bodies, unless others are given."""
    named: dict[str, Any] = {
        "bodies": pa.array(rows, pa.binary()),
        "flags": None,
        "id_prefix": b"UNIQ_KEY\x017F000001",
        "first_id": 0x00FF_FFFF_FFFF,
        "mark": b"\x02MARK\x01q/",
        "first_sequence": 98,
        "entries": [],
        "rest": None,
    }
    return MessageParts(**(named | changes))


def texts(values: list[bytes]) -> pa.Array:
    """A column that starts in the middle of its buffers, as slices do."""
    return pa.array([b"before", *values, b"after"], pa.binary()).slice(1, len(values))


_texts = st.lists(st.binary(max_size=9), min_size=4, max_size=4)


@st.composite
def any_parts(draw: st.DrawFn) -> MessageParts:
    """Parts of up to four rows."""
    count = draw(st.integers(0, 4))

    def column() -> pa.Array:
        return texts(draw(_texts)[:count])

    return parts(
        [],
        bodies=column(),
        flags=np.array(draw(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=4)))[:count]
        if draw(st.booleans())
        else None,
        id_prefix=draw(st.binary(max_size=5)),
        first_id=draw(st.integers(0, 2**48 - 5)),
        mark=draw(st.binary(max_size=5)),
        first_sequence=draw(st.one_of(st.integers(0, 2**62), st.integers(0, 20))),
        entries=[(name, column()) for name in draw(st.sampled_from(["", "K", "KT", "KTS"]))],
        rest=column() if draw(st.booleans()) else None,
    )


def test_a_message_has_its_body_and_all_its_properties_in_order() -> None:
    made = messages_of(
        parts(
            [b"one", b"two!"],
            flags=np.array([7, -1]),
            entries=[("KEYS", texts([b"k1", b""])), ("TAGS", texts([b"", b"t"]))],
            rest=texts([b"own\x01a\x02", b""]),
        )
    )

    assert [decode_batch(message) for message in made.to_pylist()] == [
        [
            BatchedMessage(
                7,
                b"one",
                b"UNIQ_KEY\x017F00000100FFFFFFFFFF\x02MARK\x01q/98\x02KEYS\x01k1\x02own\x01a\x02",
            )
        ],
        [BatchedMessage(-1, b"two!", b"UNIQ_KEY\x017F000001010000000000\x02MARK\x01q/99\x02TAGS\x01t\x02")],
    ]  # fmt: skip


def test_without_rows_there_are_no_messages() -> None:
    assert messages_of(parts([])).to_pylist() == []


def test_the_row_with_the_longest_properties_is_named_when_they_are_too_long() -> None:
    rest = texts([b"x" * length for length in (32_000, 33_000, 33_000, 32_999)])

    with pytest.raises(RowRefused, match=r"take 33039 bytes, above the limit of 32767") as refused:
        messages_of(parts([b"m"] * 4, first_sequence=0, rest=rest))

    assert refused.value.row == 1
