"""Columns of Arrow, made of bytes that lie elsewhere."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.record.hosts import encode_host
from orbitmq.record.message_id import encode_message_id
from orbitmq.spark.arrow_columns import (
    constant,
    content_of,
    gather,
    host_text,
    hosts,
    not_utf8,
    offset_ids,
    timestamp_us,
    timestamps,
)

TIMES = pa.timestamp("us", tz="UTC")


@given(pieces=st.lists(st.tuples(st.binary(max_size=5), st.binary(max_size=5)), min_size=1))
def test_gathering_copies_slices_and_leaves_out_what_lies_between(
    pieces: list[tuple[bytes, bytes]],
) -> None:
    content, at = b"", []
    for gap, piece in pieces:
        at.append(len(content) + len(gap))
        content += gap + piece

    column = gather(
        pa.py_buffer(content), np.array(at), np.array([len(piece) for _, piece in pieces])
    )

    column.validate(full=True)
    assert column.to_pylist() == [piece for _, piece in pieces]


def test_a_column_without_bytes_has_no_content() -> None:
    offsets, content = content_of(pa.array([b"", b""]))

    assert (offsets.tolist(), content.tolist()) == ([0, 0, 0], [])


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ([b"plain", b""], None),
        (["größe".encode(), "🚀".encode()], None),
        ([b"plain", b"\xff", "é".encode()], [False, True, False]),
        ([b"\xc3", b"\xa9"], [True, True]),
        ([b"\xed\xa0\x80", b"ok"], [True, False]),
    ],
)
def test_rows_that_are_no_text_are_told(texts: list[bytes], expected: list[bool] | None) -> None:
    mask = not_utf8(pa.array(texts, pa.binary()))

    assert (mask if mask is None else mask.tolist()) == expected


@pytest.mark.parametrize("text", ["", "broker-a", "größe"])
def test_a_constant_column_has_its_text_in_each_row(text: str) -> None:
    column = constant(text, 3)

    column.validate(full=True)
    assert column.to_pylist() == [text] * 3


@given(times_ms=st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_times_are_the_same_together_and_alone(times_ms: list[int]) -> None:
    column = timestamps(np.array(times_ms, dtype=np.int64), TIMES)

    assert column.type == TIMES
    assert column.cast(pa.int64()).to_pylist() == [timestamp_us(time) for time in times_ms]


def test_times_are_in_microseconds_and_end_where_timestamps_end() -> None:
    assert timestamp_us(1700000000123) == 1700000000123000
    assert timestamp_us(2**63 - 1) == 9223372036854775000
    assert timestamp_us(-(2**63)) == -9223372036854775000


@pytest.mark.parametrize("hosts_there", [1, 2, 300])
def test_each_host_is_shown_as_text(hosts_there: int) -> None:
    addresses = [
        f"10.0.{number % hosts_there // 256}.{number % hosts_there % 256}" for number in range(600)
    ]
    heads = np.array(
        [(encode_host(address, 1),) for address in addresses], dtype=[("born_host", "V8")]
    )

    column = hosts(heads, "born_host")

    assert column.to_pylist() == [f"{address}:1" for address in addresses]


def test_the_address_of_an_ipv6_host_stands_in_brackets() -> None:
    assert host_text(encode_host("2001:db8::7", 10911)) == "[2001:db8::7]:10911"


@pytest.mark.parametrize("address", ["10.1.2.3", "2001:db8::7"])
def test_ids_say_where_messages_lie(address: str) -> None:
    host = encode_host(address, 10911)
    offsets = [0, 1, 0xABCDEF0123, -1]
    heads = np.array(
        [(host, offset) for offset in offsets],
        dtype=[("store_host", f"V{len(host)}"), ("physical_offset", ">i8")],
    )

    column = offset_ids(heads)

    column.validate(full=True)
    assert column.to_pylist() == [encode_message_id(host, offset) for offset in offsets]
