"""Reading plain sends: compiled where the extension is there, else not here.

The compiled reader leaves what is written in an unusual way; `plain_sends` reads that, and
everything where there is no extension or ORBITMQ_PURE=1 is in the environment.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from orbitmq.protocol.plain_sends import PlainSend

ReadPlainSend = Callable[[bytes, int, int, bytes], PlainSend | None]


def _read_nothing(_chunk: bytes, _start: int, _end: int, _marks: bytes) -> PlainSend | None:
    return None


read_usual_send: ReadPlainSend
try:
    if os.environ.get("ORBITMQ_PURE") == "1":
        raise ImportError("the plain forms are asked for")  # noqa: TRY301  # one way to the plain
    from orbitmq.protocol import plain_sends_native
except ImportError:
    read_usual_send = _read_nothing
    is_compiled = False
else:
    read_usual_send = plain_sends_native.read_plain_send
    is_compiled = True

IS_COMPILED: Final = is_compiled
