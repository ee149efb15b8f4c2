"""Reading plain sends and batches: compiled where the extensions are there.

The compiled readers of headers leave what is written in an unusual way; `plain_sends` and
`plain_batches` read that, and everything where there are no extensions or ORBITMQ_PURE=1 is in the
environment.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from orbitmq.protocol import plain_batches
from orbitmq.protocol.plain_batches import BatchEntry, PlainBatch
from orbitmq.protocol.plain_sends import PlainSend

ReadPlainSend = Callable[[bytes, int, int, bytes], PlainSend | None]
ReadPlainBatch = Callable[[bytes, int, int], PlainBatch | None]
MeasureMessages = Callable[[bytes, int, int, bytes], tuple[int, int] | None]
ReadEntries = Callable[[bytes, int, int, bytes, int, bytes, int], list[BatchEntry] | None]


def _read_nothing(_chunk: bytes, _start: int, _end: int, _marks: bytes) -> PlainSend | None:
    return None


def _read_no_batch(_chunk: bytes, _start: int, _end: int) -> PlainBatch | None:
    return None


read_usual_send: ReadPlainSend
read_usual_batch: ReadPlainBatch
measure_messages: MeasureMessages
read_entries: ReadEntries
try:
    if os.environ.get("ORBITMQ_PURE") == "1":
        raise ImportError("the plain forms are asked for")  # noqa: TRY301  # one way to the plain
    from orbitmq.protocol.compiled import plain_batches_cython, plain_sends_cython
except ImportError:
    read_usual_send = _read_nothing
    read_usual_batch = _read_no_batch
    measure_messages = plain_batches.measure_messages
    read_entries = plain_batches.read_entries
    is_compiled = False
else:
    read_usual_send = plain_sends_cython.read_plain_send
    read_usual_batch = plain_sends_cython.read_plain_batch
    measure_messages = plain_batches_cython.measure_messages
    read_entries = plain_batches_cython.read_entries
    is_compiled = True

IS_COMPILED: Final = is_compiled
