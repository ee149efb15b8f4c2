"""Which forms of the hot path are used."""

from __future__ import annotations

import pytest

from orbitmq.store import appender, hot_path, key_table
from tests.unit.fresh_process import printed_by

SHOW = (
    "from orbitmq.store import hot_path; print(hot_path.IS_COMPILED, hot_path.Appender.__module__)"
)
PLAIN = "False orbitmq.store.appender"


def test_the_plain_form_is_used_when_it_is_asked_for() -> None:
    assert printed_by(SHOW, ORBITMQ_PURE="1") == PLAIN


@pytest.mark.parametrize(
    "missing",
    ["orbitmq.store.appender_native", "orbitmq.store.key_table_native", "orbitmq.record.native"],
)
def test_the_plain_form_is_used_when_there_is_no_extension(missing: str) -> None:
    assert printed_by(f"import sys; sys.modules[{missing!r}] = None; {SHOW}") == PLAIN


def test_the_compiled_form_is_used_when_the_extension_is_there() -> None:
    pytest.importorskip("orbitmq.store.appender_native", reason="not compiled")

    assert printed_by(SHOW) == "True orbitmq.store.appender_native"


def test_it_says_what_it_is() -> None:
    assert hot_path.IS_COMPILED is (hot_path.Appender is not appender.Appender)
    assert hot_path.IS_COMPILED is (hot_path.put_keys is not key_table.put_keys)
    assert hot_path.IS_COMPILED is (hot_path.chain_entries is not key_table.chain_entries)
