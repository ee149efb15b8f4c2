"""Which forms of decoding rows and encoding messages are used."""

from __future__ import annotations

import pytest

from orbitmq.spark.rows import fast_forms as row_forms
from orbitmq.spark.rows import plain_rows
from orbitmq.spark.writing import fast_forms as message_forms
from orbitmq.spark.writing import message_parts
from tests.unit.fresh_process import printed_by

EXTENSIONS = {
    "rows": "orbitmq.spark.rows.compiled.rows_cython",
    "writing": "orbitmq.spark.writing.compiled.messages_cython",
}
SHELVES = pytest.mark.parametrize("shelf", EXTENSIONS)


def show(shelf: str) -> str:
    return f"from orbitmq.spark.{shelf} import fast_forms; print(fast_forms.IS_COMPILED)"


@SHELVES
def test_the_plain_form_is_used_with_orbitmq_pure(shelf: str) -> None:
    assert printed_by(show(shelf), ORBITMQ_PURE="1") == "False"


@SHELVES
def test_the_plain_form_is_used_without_the_extension(shelf: str) -> None:
    code = f"import sys; sys.modules[{EXTENSIONS[shelf]!r}] = None; {show(shelf)}"

    assert printed_by(code) == "False"


@SHELVES
def test_the_compiled_form_is_used_with_the_extension(shelf: str) -> None:
    pytest.importorskip(EXTENSIONS[shelf], reason="not compiled", exc_type=ImportError)

    assert printed_by(show(shelf)) == "True"


def test_is_compiled_reports_the_form() -> None:
    assert row_forms.IS_COMPILED is (row_forms.fast_rows is not None)
    assert row_forms.IS_COMPILED is (row_forms.record_starts is not plain_rows.record_starts)
    assert message_forms.IS_COMPILED is (message_forms.messages_of is not message_parts.messages_of)
