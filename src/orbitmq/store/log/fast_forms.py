"""The appender: the fast form where it is compiled, else the plain one.

ORBITMQ_PURE=1 in the environment chooses the plain form, as in `record.codec`.
"""

from __future__ import annotations

from typing import Final

from orbitmq.record.codec import IS_COMPILED as CODEC_IS_COMPILED
from orbitmq.store.log import appender

Appender: type[appender.Appender]
try:
    if not CODEC_IS_COMPILED:
        raise ImportError("the plain forms go together")  # noqa: TRY301  # one way to the plain
    from orbitmq.store.log.compiled import (  # type: ignore[attr-defined]  # it is appender.py, compiled
        appender_cython,
    )
except ImportError:
    Appender = appender.Appender
else:
    Appender = appender_cython.Appender

IS_COMPILED: Final = Appender is not appender.Appender
