"""The choice of forms: compiled, or plain where that is asked for."""

from __future__ import annotations

import pytest

from orbitmq.spark import fast_forms, message_parts, plain_rows
from tests.unit.fresh_process import printed_by

SHOW = "from orbitmq.spark import fast_forms; print(fast_forms.IS_COMPILED)"


def test_the_plain_form_is_used_when_it_is_asked_for() -> None:
    assert printed_by(SHOW, ORBITMQ_PURE="1") == "False"


def test_the_plain_form_is_used_when_there_is_no_extension() -> None:
    assert (
        printed_by(f"import sys; sys.modules['orbitmq.spark.compiled.rows_cython'] = None; {SHOW}")
        == "False"
    )


def test_the_plain_forms_are_used_when_one_extension_is_missing() -> None:
    assert (
        printed_by(
            f"import sys; sys.modules['orbitmq.spark.compiled.messages_cython'] = None; {SHOW}"
        )
        == "False"
    )


def test_the_compiled_form_is_used_when_the_extension_is_there() -> None:
    pytest.importorskip(
        "orbitmq.spark.compiled.rows_cython", reason="not compiled", exc_type=ImportError
    )

    assert printed_by(SHOW) == "True"


def test_it_says_what_it_is() -> None:
    assert fast_forms.IS_COMPILED is (fast_forms.fast_rows is not None)
    assert fast_forms.IS_COMPILED is (fast_forms.record_starts is not plain_rows.record_starts)
    assert fast_forms.IS_COMPILED is (fast_forms.messages_of is not message_parts.messages_of)
