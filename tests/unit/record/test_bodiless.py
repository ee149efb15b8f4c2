"""Records without their bodies."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest
from hypothesis import given

from orbitmq.record import bodiless, codec
from orbitmq.record.compression import Compression, compress
from orbitmq.record.decode import decode_record
from orbitmq.record.layout import COMPRESSED
from tests.unit.record.sample_records import KNOWN, Sample, samples

forms = pytest.mark.parametrize(
    "without_bodies", [bodiless.without_bodies, codec.without_bodies], ids=["plain", "chosen"]
)
Form = Callable[[Iterable[bytes]], list[bytes]]


@forms
@given(sample=samples())
def test_a_record_is_as_if_its_body_were_empty(without_bodies: Form, sample: Sample) -> None:
    record = sample.encode()

    (short,) = without_bodies([record])

    if sample.body:
        sample = replace(sample, body=b"", system_flag=sample.system_flag & ~COMPRESSED)
    assert short == sample.encode()


@forms
def test_a_compressed_body_leaves_no_sign(without_bodies: Form) -> None:
    packed = replace(
        KNOWN,
        body=compress(bytes(1000), Compression.ZSTD),
        system_flag=COMPRESSED | Compression.ZSTD.value,
    )

    (short,) = without_bodies([packed.encode()])

    found = decode_record(short)
    assert (found.stored_body, found.system_flag) == (b"", Compression.ZSTD.value)


@forms
def test_bytes_that_are_no_whole_record_stay_as_they_are(without_bodies: Form) -> None:
    record = KNOWN.encode()
    cut = [record[:size] for size in range(88 + len(KNOWN.body))]
    false_size = record[:84] + b"\xff\xff\xff\xff" + record[88:]

    assert without_bodies([*cut, false_size]) == [*cut, false_size]
