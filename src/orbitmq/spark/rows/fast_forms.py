"""Selects the form that decodes records: the fast one, if it is compiled.

The plain form (plain_rows.py) knows every rule. It reads all records if nothing is compiled or
ORBITMQ_PURE=1 is in the environment, and otherwise those that the fast form leaves to it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from orbitmq.spark.rows import plain_rows
from orbitmq.spark.rows.plain_rows import Positions

if TYPE_CHECKING:
    from orbitmq.spark.rows.compiled_rows import CompiledRows

fast_rows: type[CompiledRows] | None
record_starts: Callable[[bytes], tuple[Positions, int]]
try:
    if os.environ.get("ORBITMQ_PURE") == "1":
        raise ImportError("ORBITMQ_PURE=1 selects the plain form")  # noqa: TRY301  # one way to the plain
    from orbitmq.spark.rows import compiled_rows
except ImportError:
    fast_rows = None
    record_starts = plain_rows.record_starts
else:
    fast_rows = compiled_rows.CompiledRows
    record_starts = compiled_rows.record_starts

IS_COMPILED: Final = fast_rows is not None
