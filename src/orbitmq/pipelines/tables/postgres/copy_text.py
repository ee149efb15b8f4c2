r"""Rows of Arrow as the lines that PostgreSQL's COPY reads.

Values of a line are parted by tabs, null is `\N`, and a backslash comes before what would be taken
for something else.
"""

from __future__ import annotations

from typing import Final, cast

import pyarrow as pa
import pyarrow.compute as pc

from orbitmq.errors import RowValueError

_NULL: Final = "\\N"
_ESCAPES: Final = (("\\", "\\\\"), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t"))


def copy_lines(batch: pa.RecordBatch, first: tuple[int, ...]) -> bytes:
    """The lines of a batch, each beginning with some numbers; raises RowValueError."""
    prefix = pa.scalar("\t".join(map(str, first)), pa.large_string())
    tab = pa.scalar("\t", pa.large_string())
    columns = [
        _texts(name, column) for name, column in zip(batch.schema.names, batch.columns, strict=True)
    ]
    lines = pc.binary_join_element_wise(
        prefix, *columns, tab, null_handling="replace", null_replacement=_NULL
    )
    return ("\n".join(lines.to_pylist()) + "\n").encode() if len(lines) else b""


def _texts(name: str, column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        values = [None if one is None else f"\\\\x{one.hex()}" for one in column.to_pylist()]
        return pa.array(values, pa.large_string())
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        _check_year(name, column)
    texts = pc.cast(column, pa.large_string())
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        return texts
    if pc.any(pc.match_substring(texts, "\0")).as_py():
        raise RowValueError(name, "a text has a zero byte, which PostgreSQL cannot store")
    for character, escaped in _ESCAPES:
        texts = pc.replace_substring(texts, character, escaped)
    return cast("pa.Array", texts)


def _check_year(name: str, column: pa.Array) -> None:
    """Arrow's text of a time before the year 1 means another one to PostgreSQL."""
    if pc.any(pc.less(pc.year(column), 1)).as_py():
        raise RowValueError(name, "a time is before the year 1")
