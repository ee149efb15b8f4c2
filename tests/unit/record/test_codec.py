"""Which form of the codec is used."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from orbitmq.record import codec, encode, scan

SHOW = "from orbitmq.record import codec; print(codec.IS_COMPILED, codec.walk.__module__)"
PLAIN = "False orbitmq.record.scan"


def _shown(program: str, **environment: str) -> str:
    inherited = {name: value for name, value in os.environ.items() if name != "ORBITMQ_PURE"}
    return subprocess.run(
        [sys.executable, "-c", program],
        env=inherited | environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    ).stdout.strip()


def test_the_plain_forms_are_used_when_they_are_asked_for() -> None:
    assert _shown(SHOW, ORBITMQ_PURE="1") == PLAIN


def test_the_plain_forms_are_used_when_there_is_no_extension() -> None:
    without = "import sys; sys.modules['orbitmq.record.native'] = None; "

    assert _shown(without + SHOW) == PLAIN


def test_the_compiled_forms_are_used_when_the_extension_is_there() -> None:
    pytest.importorskip("orbitmq.record.native", reason="not compiled", exc_type=ImportError)

    assert _shown(SHOW) == "True orbitmq.record.native"
    assert _shown(SHOW, ORBITMQ_PURE="0") == "True orbitmq.record.native"


def test_a_codec_says_what_it_is() -> None:
    plain = codec.encode_record is encode.encode_record and codec.walk is scan.walk

    assert codec.IS_COMPILED is not plain
