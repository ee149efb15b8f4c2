"""From rows to messages: encodes an Arrow batch for batch requests.

The layout is that of `record.batch`. `row_targets` decides which queue a row goes to, `parcels`
which rows go together.

Perf: messages are encoded column by column, without a Python object per row, in a twentieth of the
time that encoding one by one takes (benchmarks/arrow_encode.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from orbitmq.model import property_names
from orbitmq.spark.writing.delivery_marks import MARK, TaskMark
from orbitmq.spark.writing.fast_forms import messages_of
from orbitmq.spark.writing.message_parts import MessageParts
from orbitmq.spark.writing.property_texts import (
    check_separators,
    filled,
    left_out,
    lengths_of,
    texts_of,
)
from orbitmq.spark.writing.row_errors import RowRefused

if TYPE_CHECKING:
    import numpy.typing as npt

    from orbitmq.model.unique_ids import UniqueIdRanges
    from orbitmq.spark.writing.write_columns import WriteColumns

_INT_MAX: Final = 2**31 - 1
_SPACE: Final = 0x20
# Columns that set a property; the column of properties cannot set it as well.
_PROPERTY_COLUMNS: Final = {
    "keys": property_names.KEYS,
    "tags": property_names.TAGS,
    "shardingKey": property_names.SHARDING_KEY,
}


@dataclass(frozen=True, slots=True)
class EncodedRows:
    """Rows as messages of a batch, back to back."""

    messages: pa.Array
    body_bytes: npt.NDArray[np.int64]
    # Which of them are delayed; None if none is.
    delayed: npt.NDArray[np.bool_] | None


class RowEncoder:
    """Encodes the rows of one task."""

    def __init__(
        self,
        columns: WriteColumns,
        mark: TaskMark,
        ids: UniqueIdRanges,
        *,
        body_bytes_max: int,
        namespace: str = "",
    ) -> None:
        self._columns = columns
        self._ids = ids
        self._body_bytes_max = body_bytes_max
        # Common to all messages of the task; the sequence follows.
        instance = f"{property_names.INSTANCE_ID}\x01{namespace}\x02" if namespace else ""
        self._mark = f"\x02{instance}{MARK}\x01{mark.prefix}".encode()
        self._left_out = left_out(
            *(name for column, name in _PROPERTY_COLUMNS.items() if column in columns)
        )

    def encode(self, rows: pa.RecordBatch, first_sequence: int) -> EncodedRows:
        """Encode rows; raises RowRefused for one that cannot be sent."""
        bodies = self._bodies(rows)
        entries, delayed = self._entries(rows)
        rest = None
        if "properties" in self._columns and rows["properties"].null_count < len(rows):
            rest = texts_of(rows["properties"], self._left_out)
        flags = None
        if "flag" in self._columns:
            flags = whole_numbers(rows, "flag", low=-_INT_MAX - 1)
        id_head, first_id = self._ids.take(len(rows))
        messages = messages_of(
            MessageParts(
                bodies=bodies,
                flags=flags,
                id_prefix=f"{property_names.UNIQUE_ID}\x01{id_head}".encode(),
                first_id=first_id,
                mark=self._mark,
                first_sequence=first_sequence,
                entries=entries,
                rest=rest,
            )
        )
        return EncodedRows(messages, lengths_of(bodies), delayed)

    def _bodies(self, rows: pa.RecordBatch) -> pa.Array:
        bodies = filled(rows["body"])
        body_bytes = lengths_of(bodies)
        if not len(rows):
            return bodies
        if not body_bytes.min():
            raise RowRefused(
                int(body_bytes.argmin()),
                "its body is null or empty",
                hint="brokers take no empty messages: filter such rows out",
            )
        if body_bytes.max() > self._body_bytes_max:
            row = int(body_bytes.argmax())
            raise RowRefused(
                row,
                f"its body of {body_bytes[row]} bytes is above the limit of {self._body_bytes_max}",
                hint="send less, or raise maxMessageBytes here and maxMessageSize at the broker",
            )
        return bodies

    def _entries(
        self, rows: pa.RecordBatch
    ) -> tuple[list[tuple[str, pa.Array]], npt.NDArray[np.bool_] | None]:
        """The properties from columns of their own, and which rows are delayed."""
        columns = self._columns
        entries = [
            (name, self._texts(rows, column))
            for column, name in _PROPERTY_COLUMNS.items()
            if column in columns and rows[column].null_count < len(rows)
        ]
        delayed = None
        if "delayLevel" in columns and rows["delayLevel"].null_count < len(rows):
            levels = whole_numbers(rows, "delayLevel", low=0)
            if levels.any():
                delayed = levels > 0
                shown = pa.array(levels).cast(pa.string()).cast(pa.binary())
                shown = pc.if_else(pa.array(delayed), shown, pa.scalar(b"", pa.binary()))
                entries.append((property_names.DELAY_LEVEL, shown))
        return entries, delayed

    def _texts(self, rows: pa.RecordBatch, column: str) -> pa.Array:
        values = rows[column]
        if pa.types.is_list(values.type):
            return _keys_of(values)
        texts = filled(values)
        check_separators(texts, f"its {column}")
        return texts


def whole_numbers(rows: pa.RecordBatch, column: str, *, low: int) -> npt.NDArray[np.int64]:
    """The numbers of a column, 0 for null."""
    values = rows[column].cast(pa.int64())
    numbers: npt.NDArray[np.int64] = values.fill_null(0).to_numpy()
    if len(numbers) and (numbers.min() < low or numbers.max() > _INT_MAX):
        row = int(np.flatnonzero((numbers < low) | (numbers > _INT_MAX))[0])
        raise RowRefused(
            row, f"its {column} cannot be {numbers[row]}", hint=f"use {low} to {_INT_MAX}"
        )
    return numbers


def _keys_of(values: pa.ListArray) -> pa.Array:
    """Join lists of keys into texts, separated by spaces."""
    keys = filled(values.flatten())
    rows = values.value_parent_indices()
    lengths = lengths_of(keys)
    is_missing = (lengths == 0) & values.flatten().is_valid().to_numpy(zero_copy_only=False)
    for bad, what in (
        (np.flatnonzero(is_missing), "is empty"),
        (_with_space(keys), "contains a space, which separates keys"),
    ):
        if len(bad):
            at = int(bad[0])
            raise RowRefused(
                rows[at].as_py(),
                f"its key {keys[at].as_py()[:60]!r} {what}",
                hint="replace the space, for example by _; leave out empty keys",
            )
    try:
        check_separators(keys, "its key")
    except RowRefused as refused:
        raise RowRefused(rows[refused.row].as_py(), refused.reason, hint=refused.hint) from None
    lists = values.fill_null([]) if values.null_count else values
    if values.flatten().null_count:
        # Rare, so it may be slower.
        lists = pa.array(
            [[key for key in each if key is not None] for each in lists.to_pylist()],
            pa.list_(pa.string()),
        )
    return pc.binary_join(lists.cast(pa.list_(pa.string())), " ").cast(pa.binary())


def _with_space(texts: pa.Array) -> npt.NDArray[np.intp]:
    return np.flatnonzero(pc.match_substring(texts, b" ").to_numpy(zero_copy_only=False))
