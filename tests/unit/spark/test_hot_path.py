"""The choice of forms: compiled, or plain where that is asked for."""

from __future__ import annotations

import pytest

from orbitmq.spark import hot_path, message_parts, record_places
from tests.unit.fresh_process import printed_by

SHOW = "from orbitmq.spark import hot_path; print(hot_path.IS_COMPILED)"


def test_the_plain_form_is_used_when_it_is_asked_for() -> None:
    assert printed_by(SHOW, ORBITMQ_PURE="1") == "False"


def test_the_plain_form_is_used_when_there_is_no_extension() -> None:
    assert (
        printed_by(f"import sys; sys.modules['orbitmq.spark.rows_native'] = None; {SHOW}")
        == "False"
    )


def test_the_plain_forms_are_used_when_one_extension_is_missing() -> None:
    assert (
        printed_by(f"import sys; sys.modules['orbitmq.spark.messages_native'] = None; {SHOW}")
        == "False"
    )


def test_the_compiled_form_is_used_when_the_extension_is_there() -> None:
    pytest.importorskip("orbitmq.spark.rows_native", reason="not compiled", exc_type=ImportError)

    assert printed_by(SHOW) == "True"


def test_it_says_what_it_is() -> None:
    assert hot_path.IS_COMPILED is (hot_path.ordinary_rows is not None)
    assert hot_path.IS_COMPILED is (hot_path.record_starts is not record_places.record_starts)
    assert hot_path.IS_COMPILED is (hot_path.messages_of is not message_parts.messages_of)
