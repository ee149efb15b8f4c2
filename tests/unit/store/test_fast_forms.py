"""Which forms of the hot path are used."""

from __future__ import annotations

import pytest

from orbitmq.store import appender, fast_forms, key_table
from tests.unit.fresh_process import printed_by

SHOW = "from orbitmq.store import fast_forms; print(fast_forms.IS_COMPILED, fast_forms.Appender.__module__)"
PLAIN = "False orbitmq.store.appender"


def test_the_plain_form_is_used_when_it_is_asked_for() -> None:
    assert printed_by(SHOW, ORBITMQ_PURE="1") == PLAIN


@pytest.mark.parametrize(
    "missing",
    [
        "orbitmq.store.compiled.appender_cython",
        "orbitmq.store.compiled.key_table_cython",
        "orbitmq.record.compiled.codec_cython",
    ],
)
def test_the_plain_form_is_used_when_there_is_no_extension(missing: str) -> None:
    assert printed_by(f"import sys; sys.modules[{missing!r}] = None; {SHOW}") == PLAIN


def test_the_compiled_form_is_used_when_the_extension_is_there() -> None:
    pytest.importorskip("orbitmq.store.compiled.appender_cython", reason="not compiled")

    assert printed_by(SHOW) == "True orbitmq.store.compiled.appender_cython"


def test_it_says_what_it_is() -> None:
    assert fast_forms.IS_COMPILED is (fast_forms.Appender is not appender.Appender)
    assert fast_forms.IS_COMPILED is (fast_forms.put_keys is not key_table.put_keys)
    assert fast_forms.IS_COMPILED is (fast_forms.chain_entries is not key_table.chain_entries)
