"""Rows as an Arrow array; those that do not fit its type become null."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

Row = dict[str, Any] | None

_UNFIT: Final = (pa.ArrowException, OverflowError, ValueError, TypeError)


def fitting_array(rows: Sequence[Row], form: pa.DataType) -> pa.Array:
    """Make an array; a decimal with more digits than its column has, say, makes its row null."""
    try:
        return pa.array(rows, form)
    except _UNFIT:
        return pa.array([row if _fits(row, form) else None for row in rows], form)


def _fits(row: Row, form: pa.DataType) -> bool:
    try:
        pa.array([row], form)
    except _UNFIT:
        return False
    return True
