"""From records to rows: compiled where the extension is there.

Without it, or with ORBITMQ_PURE=1 in the environment, the plain form (rows.py) reads all records;
with it, those that are not ordinary.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from orbitmq.spark import record_places
from orbitmq.spark.record_places import Positions

if TYPE_CHECKING:
    from orbitmq.spark.compiled_rows import CompiledRows

ordinary_rows: type[CompiledRows] | None
record_starts: Callable[[bytes], tuple[Positions, int]]
try:
    if os.environ.get("ORBITMQ_PURE") == "1":
        raise ImportError("the plain forms are asked for")  # noqa: TRY301  # one way to the plain
    from orbitmq.spark import compiled_rows
except ImportError:
    ordinary_rows = None
    record_starts = record_places.record_starts
else:
    ordinary_rows = compiled_rows.CompiledRows
    record_starts = compiled_rows.record_starts

IS_COMPILED: Final = ordinary_rows is not None
