"""Selects the form that encodes messages: the fast one, if it is compiled.

The plain form (message_parts.py) encodes the same messages if nothing is compiled or
ORBITMQ_PURE=1 is in the environment.
"""

from __future__ import annotations

import os
from typing import Final

from orbitmq.spark.writing import message_parts

try:
    if os.environ.get("ORBITMQ_PURE") == "1":
        raise ImportError("ORBITMQ_PURE=1 selects the plain form")  # noqa: TRY301  # one way to the plain
    from orbitmq.spark.writing import compiled_messages
except ImportError:
    messages_of = message_parts.messages_of
else:
    messages_of = compiled_messages.messages_of

IS_COMPILED: Final = messages_of is not message_parts.messages_of
