"""From records to rows and from rows to messages, compiled where that is possible.

Without them, or with ORBITMQ_PURE=1 in the environment, the plain form (rows.py) reads all records;
with them, those that are not ordinary. Messages are written by one form or the other.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from orbitmq.spark import message_parts, record_places
from orbitmq.spark.record_places import Positions

if TYPE_CHECKING:
    from orbitmq.spark.compiled_rows import CompiledRows

ordinary_rows: type[CompiledRows] | None
record_starts: Callable[[bytes], tuple[Positions, int]]
try:
    if os.environ.get("ORBITMQ_PURE") == "1":
        raise ImportError("the plain forms are asked for")  # noqa: TRY301  # one way to the plain
    from orbitmq.spark import compiled_messages, compiled_rows
except ImportError:
    ordinary_rows = None
    record_starts = record_places.record_starts
    messages_of = message_parts.messages_of
else:
    ordinary_rows = compiled_rows.CompiledRows
    record_starts = compiled_rows.record_starts
    messages_of = compiled_messages.messages_of

IS_COMPILED: Final = ordinary_rows is not None
