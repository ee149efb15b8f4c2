"""The fast reader of sends, if it is compiled.

Without the extension, or with ORBITMQ_PURE=1 in the environment, there is none: sends then take the
ordinary form (`requests/sending.py`), which reads everything and knows every rule.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from orbitmq.protocol.plain_sends import PlainBatch, PlainSend

# Takes a chunk, the start and end of a frame in it, and the properties that the broker adds. Returns
# None for everything that needs the ordinary form.
ReadSend = Callable[[bytes, int, int, bytes], PlainSend | PlainBatch | None]

read_send: ReadSend | None
try:
    if os.environ.get("ORBITMQ_PURE") == "1":
        raise ImportError("ORBITMQ_PURE=1")  # noqa: TRY301  # one path to the plain form
    from orbitmq.protocol.compiled import plain_sends_cython
except ImportError:
    read_send = None
else:
    read_send = plain_sends_cython.read_send

IS_COMPILED: Final = read_send is not None
