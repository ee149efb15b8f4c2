"""The key table: the fast forms where they are compiled, else the plain ones.

ORBITMQ_PURE=1 in the environment chooses the plain forms, as in `record.codec`.
"""

from __future__ import annotations

from typing import Final

from orbitmq.record.codec import IS_COMPILED as CODEC_IS_COMPILED
from orbitmq.store.index import key_table

try:
    if not CODEC_IS_COMPILED:
        raise ImportError("the plain forms go together")  # noqa: TRY301  # one way to the plain
    from orbitmq.store.index.compiled import key_table_cython
except ImportError:
    put_keys = key_table.put_keys
    chain_entries = key_table.chain_entries
    is_compiled = False
else:
    put_keys = key_table_cython.put_keys
    chain_entries = key_table_cython.chain_entries
    is_compiled = True

IS_COMPILED: Final = is_compiled
