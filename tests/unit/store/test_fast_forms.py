"""Which forms of the appender, the key table and the runs of timer units are used."""

from __future__ import annotations

import pytest

from orbitmq.store.index import fast_forms as index_forms
from orbitmq.store.index import key_table
from orbitmq.store.log import appender
from orbitmq.store.log import fast_forms as log_forms
from orbitmq.store.timers import fast_forms as timer_forms
from orbitmq.store.timers import unit_runs
from tests.unit.fresh_process import printed_by

EXTENSIONS = {
    "log": "orbitmq.store.log.compiled.appender_cython",
    "index": "orbitmq.store.index.compiled.key_table_cython",
    "timers": "orbitmq.store.timers.compiled.unit_runs_cython",
}
SHELVES = pytest.mark.parametrize("shelf", EXTENSIONS)


def show(shelf: str) -> str:
    return f"from orbitmq.store.{shelf} import fast_forms; print(fast_forms.IS_COMPILED)"


@SHELVES
def test_the_plain_form_is_used_on_request(shelf: str) -> None:
    assert printed_by(show(shelf), ORBITMQ_PURE="1") == "False"


@SHELVES
def test_the_plain_form_is_used_when_there_is_no_extension(shelf: str) -> None:
    for missing in (EXTENSIONS[shelf], "orbitmq.record.compiled.codec_cython"):
        code = f"import sys; sys.modules[{missing!r}] = None; {show(shelf)}"
        assert printed_by(code) == "False"


@SHELVES
def test_the_compiled_form_is_used_when_the_extension_is_there(shelf: str) -> None:
    pytest.importorskip(EXTENSIONS[shelf], reason="not compiled", exc_type=ImportError)

    assert printed_by(show(shelf)) == "True"


def test_the_forms_say_whether_they_are_compiled() -> None:
    assert log_forms.IS_COMPILED is (log_forms.Appender is not appender.Appender)
    assert index_forms.IS_COMPILED is (index_forms.put_keys is not key_table.put_keys)
    assert index_forms.IS_COMPILED is (index_forms.chain_entries is not key_table.chain_entries)
    assert timer_forms.IS_COMPILED is (timer_forms.load_units is not unit_runs.load_units)
    assert timer_forms.IS_COMPILED is (timer_forms.chain_units is not unit_runs.chain_units)
