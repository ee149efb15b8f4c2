"""The store's `Appender`: compiled where the extension is there, else plain.

With ORBITMQ_PURE=1 in the environment the plain form is used, as in `record.codec`.
"""

from __future__ import annotations

from typing import Final

from orbitmq.record.codec import IS_COMPILED as CODEC_IS_COMPILED
from orbitmq.store import appender

Appender: type[appender.Appender]
try:
    if not CODEC_IS_COMPILED:
        raise ImportError("the plain forms go together")  # noqa: TRY301  # one way to the plain
    from orbitmq.store import appender_native  # type: ignore[attr-defined]  # appender.py, compiled
except ImportError:
    Appender = appender.Appender
    is_compiled = False
else:
    Appender = appender_native.Appender
    is_compiled = True

IS_COMPILED: Final = is_compiled
