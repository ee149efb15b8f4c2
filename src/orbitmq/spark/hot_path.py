"""From records to rows: compiled where the extension is there.

Without it, or with ORBITMQ_PURE=1 in the environment, the plain form (rows.py) reads all records;
with it, those that are not ordinary.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from orbitmq.spark.compiled_rows import CompiledRows

ordinary_rows: type[CompiledRows] | None
try:
    if os.environ.get("ORBITMQ_PURE") == "1":
        raise ImportError("the plain forms are asked for")  # noqa: TRY301  # one way to the plain
    from orbitmq.spark import compiled_rows
except ImportError:
    ordinary_rows = None
else:
    ordinary_rows = compiled_rows.CompiledRows

IS_COMPILED: Final = ordinary_rows is not None
