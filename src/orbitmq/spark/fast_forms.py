"""From records to rows and from rows to messages, compiled where that is possible.

There are two forms each. The plain one (plain_rows.py, message_parts.py) knows every rule, and does
all work where nothing is compiled or with ORBITMQ_PURE=1 in the environment. The compiled one is
fast; it leaves some records to the plain one, and writes all messages.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from orbitmq.spark import message_parts, plain_rows
from orbitmq.spark.plain_rows import Positions

if TYPE_CHECKING:
    from orbitmq.spark.compiled_rows import CompiledRows

fast_rows: type[CompiledRows] | None
record_starts: Callable[[bytes], tuple[Positions, int]]
try:
    if os.environ.get("ORBITMQ_PURE") == "1":
        raise ImportError("the plain forms are asked for")  # noqa: TRY301  # one way to the plain
    from orbitmq.spark import compiled_messages, compiled_rows
except ImportError:
    fast_rows = None
    record_starts = plain_rows.record_starts
    messages_of = message_parts.messages_of
else:
    fast_rows = compiled_rows.CompiledRows
    record_starts = compiled_rows.record_starts
    messages_of = compiled_messages.messages_of

IS_COMPILED: Final = fast_rows is not None
