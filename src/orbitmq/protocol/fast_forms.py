"""The fast form of reading sends, where it is compiled.

There is none without the extension, or with ORBITMQ_PURE=1 in the environment: sends then take the
ordinary form (`requests/sending.py`), which reads everything and knows every rule.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from orbitmq.protocol.plain_sends import PlainBatch, PlainSend

# Given a chunk, where a frame starts and ends in it, and the properties that the broker adds; None
# for everything that the ordinary form has to look at.
ReadSend = Callable[[bytes, int, int, bytes], PlainSend | PlainBatch | None]

read_send: ReadSend | None
try:
    if os.environ.get("ORBITMQ_PURE") == "1":
        raise ImportError("the plain forms are asked for")  # noqa: TRY301  # one way to the plain
    from orbitmq.protocol.compiled import plain_sends_cython
except ImportError:
    read_send = None
else:
    read_send = plain_sends_cython.read_send

IS_COMPILED: Final = read_send is not None
