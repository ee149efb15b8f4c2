"""The compiled form writes the messages that the plain form writes."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given

from orbitmq.spark.writing import fast_forms, message_parts
from orbitmq.spark.writing.message_parts import MessageParts
from orbitmq.spark.writing.row_errors import RowRefused
from tests.unit.spark.writing.test_message_parts import any_parts, parts, texts

pytestmark = pytest.mark.skipif(not fast_forms.IS_COMPILED, reason="there is no compiled form here")


@given(any_parts())
def test_any_messages_are_written_alike(given_parts: MessageParts) -> None:
    made = fast_forms.messages_of(given_parts)

    made.validate(full=True)
    assert made.equals(message_parts.messages_of(given_parts))


def test_columns_without_rows_are_written_alike() -> None:
    empty = pa.array([], pa.binary())
    given_parts = parts([], bodies=empty, entries=[("KEYS", empty)], rest=empty)

    assert fast_forms.messages_of(given_parts).equals(message_parts.messages_of(given_parts))


def test_properties_that_are_too_long_are_refused_alike() -> None:
    rest = texts([b"x" * size for size in (40_000, 50_000, 50_000)])
    given_parts = parts([b"m"] * 3, first_sequence=0, rest=rest)

    with pytest.raises(RowRefused) as plain:
        message_parts.messages_of(given_parts)
    with pytest.raises(RowRefused) as compiled:
        fast_forms.messages_of(given_parts)

    assert (compiled.value.row, str(compiled.value)) == (plain.value.row, str(plain.value))
    assert compiled.value.row == 1


@pytest.mark.parametrize("size", range(32_767 - 53, 32_767 - 47))
def test_properties_that_just_fit_are_written_alike(size: int) -> None:
    given_parts = parts([b"m"], rest=texts([b"x" * size]))

    def outcome(form: object) -> object:
        try:
            return form.messages_of(given_parts).to_pylist()  # type: ignore[attr-defined]  # either
        except RowRefused as refused:
            return str(refused)

    assert outcome(fast_forms) == outcome(message_parts)
