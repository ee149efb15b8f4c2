"""Bodies: copied, unpacked, checked."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import BatchTooLargeError, ProtocolError
from orbitmq.record.compression import Compression, compress
from orbitmq.record.layout import COMPRESSED
from orbitmq.spark import body_columns
from orbitmq.spark.body_columns import bodies, check_bodies
from orbitmq.spark.record_places import Located, locate_all
from tests.unit.record.sample_records import KNOWN, Sample
from tests.unit.spark.plain_rows import BROKER, joined


def _packed(body: bytes, kind: Compression) -> Sample:
    return replace(KNOWN, body=compress(body, kind), system_flag=COMPRESSED | kind.value)


def _located(records: list[bytes]) -> tuple[pa.Buffer, Located]:
    buffer, positions = joined(records)
    (located,) = locate_all(np.frombuffer(buffer, dtype=np.uint8), positions)
    return pa.py_buffer(buffer), located


@given(
    some=st.lists(
        st.tuples(st.binary(max_size=20), st.one_of(st.none(), st.sampled_from(Compression))),
        min_size=1,
        max_size=10,
    )
)
def test_bodies_are_as_their_producers_wrote_them(
    some: list[tuple[bytes, Compression | None]],
) -> None:
    samples = [
        replace(KNOWN, body=body) if kind is None else _packed(body, kind) for body, kind in some
    ]
    content, located = _located([sample.encode() for sample in samples])

    column = bodies(content, located, BROKER)

    column.validate(full=True)
    assert column.type == pa.binary()
    assert column.to_pylist() == [body for body, _ in some]


def test_an_empty_body_is_never_unpacked() -> None:
    content, located = _located([replace(KNOWN, body=b"", system_flag=COMPRESSED).encode()])

    assert bodies(content, located, BROKER).to_pylist() == [b""]


def test_a_body_that_cannot_be_unpacked_is_named() -> None:
    broken = replace(KNOWN, body=b"broken", system_flag=COMPRESSED, queue_offset=8)
    content, located = _located([KNOWN.encode(), broken.encode()])

    with pytest.raises(ProtocolError, match=r"queue 1, offset 8, physical offset 1000, .* broken"):
        bodies(content, located, BROKER)


def test_more_than_a_column_can_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_columns, "COLUMN_BYTES_MAX", 1000)
    content, located = _located([KNOWN.encode(), _packed(bytes(1000), Compression.ZLIB).encode()])

    with pytest.raises(BatchTooLargeError, match="2 rows take more than the 1000 bytes"):
        bodies(content, located, BROKER)


def test_unpacking_ends_where_several_bodies_are_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_columns, "UNPACKED_BYTES_MAX", 1000)
    large = _packed(bytes(600), Compression.ZSTD).encode()
    broken = replace(KNOWN, body=b"broken", system_flag=COMPRESSED).encode()

    # The third is not reached.
    with pytest.raises(BatchTooLargeError, match="3 rows take more than the 1000 bytes"):
        bodies(*_located([large, large, broken]), BROKER)
    assert bodies(*_located([large, KNOWN.encode()]), BROKER).to_pylist() == [
        bytes(600),
        KNOWN.body,
    ]


def test_one_body_is_unpacked_however_large_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_columns, "UNPACKED_BYTES_MAX", 1000)
    content, located = _located([_packed(bytes(5000), Compression.ZSTD).encode()])

    assert bodies(content, located, BROKER).to_pylist() == [bytes(5000)]


def test_a_checksum_is_that_of_the_body_as_stored() -> None:
    records = [KNOWN.encode(), _packed(b"body", Compression.LZ4).encode()]
    damaged = bytearray(records[1])
    damaged[90] ^= 1

    check_bodies(*_located(records), BROKER)
    with pytest.raises(ProtocolError, match="its body does not fit: checksum is"):
        check_bodies(*_located([records[0], bytes(damaged)]), BROKER)
