"""Records whose bodies decompress to more than one batch should hold."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import pytest

from orbitmq.errors import BatchTooLargeError, ProtocolError
from orbitmq.record.compression import Compression, compress
from orbitmq.record.layout import COMPRESSED
from orbitmq.spark.rows import plain_rows, row_decoder
from orbitmq.spark.rows.row_batches import row_batches
from orbitmq.spark.rows.row_decoder import RowDecoder
from tests.unit.record.sample_records import KNOWN
from tests.unit.spark.sample_rows import BROKER, all_columns, joined, plain_row, rows_of

PROJECTION = all_columns()
MIB = 1024 * 1024


def _record(body_bytes: int, number: int = 0) -> bytes:
    body = compress(bytes(body_bytes), Compression.ZSTD)
    flag = COMPRESSED | Compression.ZSTD.value
    return replace(KNOWN, body=body, system_flag=flag, queue_offset=number).encode()


def test_records_that_fit_make_one_batch() -> None:
    buffer, positions = joined([KNOWN.encode(), _record(1000)])

    (batch,) = row_batches(RowDecoder(PROJECTION), buffer, positions, BROKER)

    assert batch.num_rows == 2


def test_records_that_do_not_fit_make_several_batches_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plain_rows, "DECOMPRESSED_BYTES_MAX", 1000)
    sizes = [10, 900, 20, 5000, 1, 600, 600, 3]
    records = [_record(size, number) for number, size in enumerate(sizes)]
    buffer, positions = joined(records)

    batches = list(row_batches(RowDecoder(PROJECTION), buffer, positions, BROKER))

    found = [row for batch in batches for row in rows_of(batch)]
    assert found == [plain_row(record, PROJECTION) for record in records]
    assert 4 <= len(batches) < len(sizes)


def test_decompression_takes_bounded_memory() -> None:
    records = [_record(40 * MIB, number) for number in range(16)]
    buffer, positions = joined(records)
    assert len(buffer) < MIB
    read = 0

    tracemalloc.start()
    try:
        for batch in row_batches(RowDecoder(PROJECTION), buffer, positions, BROKER):
            read += batch.num_rows
            assert batch.nbytes < 65 * MIB
            del batch
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert read == len(records)
    assert peak_bytes < 200 * MIB


def test_one_record_that_no_batch_can_hold_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_decoder, "COLUMN_BYTES_MAX", 100)
    buffer, positions = joined([KNOWN.encode()])

    with pytest.raises(BatchTooLargeError):
        list(row_batches(RowDecoder(PROJECTION), buffer, positions, BROKER))


def test_an_unreadable_record_fails_or_is_skipped_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bad = replace(KNOWN, body=b"no zip", system_flag=COMPRESSED, queue_offset=3).encode()
    records = [_record(100, number) for number in range(3)] + [bad, _record(100, 4)]
    buffer, positions = joined(records)
    decoder = RowDecoder(PROJECTION)

    with pytest.raises(ProtocolError, match=r"offset 3,.*failOnDataLoss=false"):
        list(row_batches(decoder, buffer, positions, BROKER))
    batches = list(row_batches(decoder, buffer, positions, BROKER, fail_on_data_loss=False))

    found = [row for batch in batches for row in rows_of(batch)]
    assert found == [plain_row(record, PROJECTION) for record in records if record is not bad]
    assert "offset 3," in caplog.text
