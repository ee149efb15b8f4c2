"""Typed headers: how dataclasses map to string fields."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import ProtocolError
from orbitmq.protocol.headers import Header, Long, fast_form, wire


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample(Header):
    """One field of each kind."""

    topic: str
    queue_id: int
    queue_offset: Long
    is_batch: bool
    timeout_ms: int | None = wire("timeoutMillis", None)
    ratio: float | None = None
    note: str | None = None
    limit: int = 32


SAMPLES = st.builds(
    Sample,
    topic=st.text(),
    queue_id=st.integers(-(2**31), 2**31 - 1),
    queue_offset=st.integers(-(2**63), 2**63 - 1).map(Long),
    is_batch=st.booleans(),
    timeout_ms=st.none() | st.integers(-(2**31), 2**31 - 1),
    ratio=st.none() | st.floats(allow_nan=False),
    note=st.none() | st.text(),
    limit=st.integers(-(2**31), 2**31 - 1),
)

FIELDS = {"topic": "T", "queueId": "1", "queueOffset": "2", "isBatch": "true"}


def test_fields_are_sent_as_strings_under_their_java_names() -> None:
    header = Sample(
        topic="T", queue_id=1, queue_offset=Long(2), is_batch=True, timeout_ms=3, ratio=0.5
    )

    assert header.encode() == {
        "topic": "T",
        "queueId": "1",
        "queueOffset": "2",
        "isBatch": "true",
        "timeoutMillis": "3",
        "ratio": "0.5",
        "limit": "32",
    }


def test_missing_fields_take_their_defaults_and_unknown_ones_are_ignored() -> None:
    header = Sample.decode({**FIELDS, "bname": "broker-a", "timeout_ms": "9"})

    assert header == Sample(topic="T", queue_id=1, queue_offset=Long(2), is_batch=True)


@given(SAMPLES)
def test_a_header_survives_a_round_trip(header: Sample) -> None:
    assert Sample.decode(header.encode()) == header


@pytest.mark.parametrize("missing", FIELDS)
def test_a_missing_required_field_is_refused_with_the_fields_present(missing: str) -> None:
    fields = {name: text for name, text in FIELDS.items() if name != missing}

    with pytest.raises(ProtocolError, match=f"field '{missing}' of Sample is missing") as refused:
        Sample.decode(fields)

    assert ", ".join(sorted(fields)) in refused.value.hint


def test_a_request_without_any_fields_is_refused_with_a_plain_hint() -> None:
    with pytest.raises(ProtocolError, match="no fields"):
        Sample.decode({})


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("-0", 0),
        ("+5", 5),
        ("007", 7),
        ("-2147483648", -(2**31)),
        ("2147483647", 2**31 - 1),
    ],
)
def test_whole_numbers_are_read_as_java_reads_them(text: str, number: int) -> None:
    assert Sample.decode({**FIELDS, "queueId": text}).queue_id == number


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "1 ", " 1", "-", "+", "--1", "1.0", "1e3", "0x1", "1_0", "\u0661", "²", "null"),
        *("2147483648", "-2147483649", "9" * 20, "9" * 10_000),
    ],
)
def test_a_value_that_is_not_a_whole_number_of_32_bits_is_refused(text: str) -> None:
    with pytest.raises(ProtocolError, match="field 'queueId' of Sample is"):
        Sample.decode({**FIELDS, "queueId": text})


@pytest.mark.parametrize("text", ["9223372036854775808", "-9223372036854775809"])
def test_a_number_beyond_64_bits_is_refused_in_a_header(text: str) -> None:
    with pytest.raises(ProtocolError, match="outside"):
        Sample.decode({**FIELDS, "queueOffset": text})


@pytest.mark.parametrize(
    ("text", "truth"),
    [("true", True), ("TRUE", True), ("True", True), ("false", False), ("1", False), ("", False)],
)
def test_only_true_in_any_case_is_true(text: str, *, truth: bool) -> None:
    assert Sample.decode({**FIELDS, "isBatch": text}).is_batch is truth


@pytest.mark.parametrize(("text", "number"), [("1.5", 1.5), ("-1E3", -1000.0), ("7", 7.0)])
def test_fractions_are_read(text: str, number: float) -> None:
    assert Sample.decode({**FIELDS, "ratio": text}).ratio == number


@pytest.mark.parametrize("text", ["", "x", "1_0", "1,5"])
def test_an_invalid_fraction_is_refused(text: str) -> None:
    with pytest.raises(ProtocolError, match="field 'ratio' of Sample is"):
        Sample.decode({**FIELDS, "ratio": text})


@dataclass(frozen=True, slots=True, kw_only=True)
class Quick(Header):
    """One field of each kind that a fast form may have."""

    topic: str
    queue_id: int
    queue_offset: Long
    timeout_ms: int | None = wire("timeoutMillis", None)
    note: str | None = None


QUICK = st.builds(
    Quick,
    topic=st.text(),
    queue_id=st.integers(-(2**31), 2**31 - 1),
    queue_offset=st.integers(-(2**63), 2**63 - 1).map(Long),
    timeout_ms=st.none() | st.integers(-(2**31), 2**31 - 1),
    note=st.none() | st.text(),
)


@given(QUICK)
def test_the_fast_form_reads_what_its_header_reads(header: Quick) -> None:
    read = msgspec.convert(header.encode(), fast_form(Quick), strict=False)

    assert msgspec.structs.asdict(read) == asdict(header)


@pytest.mark.parametrize(
    "wrong",
    [{"topic": None}, {"queueId": str(2**31)}, {"queueId": ""}, {"timeoutMillis": "null"}],
)
def test_the_fast_form_leaves_what_is_missing_or_wrong_to_its_header(
    wrong: dict[str, str | None],
) -> None:
    fields = {"topic": "T", "queueId": "1", "queueOffset": "2", **wrong}
    sent = {name: text for name, text in fields.items() if text is not None}

    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(sent, fast_form(Quick), strict=False)
