"""The fast form of sends: present if compiled and not switched off."""

from __future__ import annotations

import pytest

from tests.unit.fresh_process import printed_by

SHOW = (
    "from orbitmq.protocol import fast_forms; print(fast_forms.IS_COMPILED, fast_forms.read_send)"
)
NONE = "False None"


def test_there_is_none_if_orbitmq_pure_is_set() -> None:
    assert printed_by(SHOW, ORBITMQ_PURE="1") == NONE


def test_there_is_none_without_the_extension() -> None:
    module = "orbitmq.protocol.compiled.plain_sends_cython"

    assert printed_by(f"import sys; sys.modules[{module!r}] = None; {SHOW}") == NONE


def test_the_compiled_reader_is_used_if_present() -> None:
    pytest.importorskip(
        "orbitmq.protocol.compiled.plain_sends_cython", reason="not compiled", exc_type=ImportError
    )

    assert printed_by(SHOW).startswith("True ")
