"""Which form of the codec is used."""

from __future__ import annotations

import pytest

from orbitmq.record import codec, encode, scan
from tests.unit.fresh_process import printed_by

SHOW = "from orbitmq.record import codec; print(codec.IS_COMPILED, codec.walk.__module__)"
PLAIN = "False orbitmq.record.scan"


def test_the_plain_forms_are_used_on_request() -> None:
    assert printed_by(SHOW, ORBITMQ_PURE="1") == PLAIN


def test_the_plain_forms_are_used_when_there_is_no_extension() -> None:
    without = "import sys; sys.modules['orbitmq.record.compiled.codec_cython'] = None; "

    assert printed_by(without + SHOW) == PLAIN


def test_the_compiled_forms_are_used_when_the_extension_is_there() -> None:
    pytest.importorskip(
        "orbitmq.record.compiled.codec_cython", reason="not compiled", exc_type=ImportError
    )

    assert printed_by(SHOW) == "True orbitmq.record.compiled.codec_cython"
    assert printed_by(SHOW, ORBITMQ_PURE="0") == "True orbitmq.record.compiled.codec_cython"


def test_the_plain_forms_are_used_when_one_extension_is_missing() -> None:
    without = "import sys; sys.modules['orbitmq.record.compiled.batch_records_cython'] = None; "

    assert printed_by(without + SHOW) == PLAIN


def test_the_codec_says_whether_it_is_compiled() -> None:
    plain = codec.encode_record is encode.encode_record and codec.walk is scan.walk

    assert codec.IS_COMPILED is not plain
