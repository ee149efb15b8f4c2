"""Runs of units: the fast forms where they are compiled, else the plain ones.

ORBITMQ_PURE=1 in the environment chooses the plain forms, as in `record.codec`.
"""

from __future__ import annotations

from typing import Final

from orbitmq.record.codec import IS_COMPILED as CODEC_IS_COMPILED
from orbitmq.store.timers import unit_runs

try:
    if not CODEC_IS_COMPILED:
        raise ImportError("the plain forms go together")  # noqa: TRY301  # one way to the plain
    from orbitmq.store.timers.compiled import unit_runs_cython
except ImportError:
    load_units = unit_runs.load_units
    chain_units = unit_runs.chain_units
    is_compiled = False
else:
    load_units = unit_runs_cython.load_units
    chain_units = unit_runs_cython.chain_units
    is_compiled = True

IS_COMPILED: Final = is_compiled
