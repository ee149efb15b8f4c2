"""The store's hot path: compiled where the extensions are there, else plain.

With ORBITMQ_PURE=1 in the environment the plain forms are used, as in `record.codec`.
"""

from __future__ import annotations

from typing import Final

from orbitmq.record.codec import IS_COMPILED as CODEC_IS_COMPILED
from orbitmq.store import appender, key_table

Appender: type[appender.Appender]
try:
    if not CODEC_IS_COMPILED:
        raise ImportError("the plain forms go together")  # noqa: TRY301  # one way to the plain
    from orbitmq.store.compiled import (  # type: ignore[attr-defined]  # the first is appender.py, compiled
        appender_cython,
        key_table_cython,
    )
except ImportError:
    Appender = appender.Appender
    put_keys = key_table.put_keys
    chain_entries = key_table.chain_entries
    is_compiled = False
else:
    Appender = appender_cython.Appender
    put_keys = key_table_cython.put_keys
    chain_entries = key_table_cython.chain_entries
    is_compiled = True

IS_COMPILED: Final = is_compiled
