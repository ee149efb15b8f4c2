"""Records whose bodies decompress to more than one batch should hold."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import pytest

from orbitmq.errors import BatchTooLargeError, ProtocolError
from orbitmq.record.compression import Compression, compress
from orbitmq.record.layout import COMPRESSED
from orbitmq.spark.rows import plain_rows, row_decoder
from orbitmq.spark.rows.row_batches import LOGGED_MAX, OnUnreadable, RowBatches
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

    (batch,) = RowBatches(RowDecoder(PROJECTION)).of(buffer, positions, BROKER)

    assert batch.num_rows == 2


def test_records_that_do_not_fit_make_several_batches_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plain_rows, "DECOMPRESSED_BYTES_MAX", 1000)
    sizes = [10, 900, 20, 5000, 1, 600, 600, 3]
    records = [_record(size, number) for number, size in enumerate(sizes)]
    buffer, positions = joined(records)

    batches = list(RowBatches(RowDecoder(PROJECTION)).of(buffer, positions, BROKER))

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
        for batch in RowBatches(RowDecoder(PROJECTION)).of(buffer, positions, BROKER):
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
        list(RowBatches(RowDecoder(PROJECTION)).of(buffer, positions, BROKER))


# In a record whose hosts are IPv4 addresses.
BODY_BYTES_AT = 84


def _unreadable(number: int) -> bytes:
    return replace(KNOWN, body=b"no zip", system_flag=COMPRESSED, queue_offset=number).encode()


def _rows(choice: OnUnreadable, records: list[bytes]) -> list[dict[str, object]]:
    batches = RowBatches(RowDecoder(PROJECTION), choice)
    found = [row for batch in batches.of(*joined(records), BROKER) for row in rows_of(batch)]
    batches.end()
    return found


def test_an_unreadable_record_fails_or_is_skipped_or_null_where_it_must_be(
    caplog: pytest.LogCaptureFixture,
) -> None:
    records = [_record(100, 0), _unreadable(1), _record(100, 2)]
    whole = [plain_row(record, PROJECTION) for record in (records[0], records[2])]

    with pytest.raises(
        ProtocolError, match=rf"record of topic '{KNOWN.topic.decode()}' .*offset 1,.*onUnreadable="
    ):
        _rows("fail", records)
    assert _rows("skip", records) == whole
    first, second, third = _rows("null", records)

    assert [first, third] == whole
    assert second["body"] is None
    assert (second["queueOffset"], second["topic"]) == (1, KNOWN.topic.decode())
    assert [name for name, value in second.items() if value is None] == ["keys", "body"]
    assert caplog.text.count("offset 1,") == 2


def test_of_a_record_that_is_none_only_its_broker_is_known() -> None:
    broken = b"\xff" * 200
    decoder = RowDecoder(PROJECTION)

    (row,) = rows_of(decoder.readable_part(broken, 0, BROKER))

    assert {name: value for name, value in row.items() if value is not None} == {
        "brokerName": BROKER
    }


def test_a_record_with_broken_lengths_is_reported_with_the_topic_it_was_read_from(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broken = bytearray(KNOWN.encode())
    broken[BODY_BYTES_AT] = 0x7F
    records = joined([_record(100, 0), bytes(broken), _record(100, 2)])

    def rows(choice: OnUnreadable) -> list[dict[str, object]]:
        found = RowBatches(RowDecoder(PROJECTION), choice).of(*records, BROKER, lambda _: "orders")
        return [row for batch in found for row in rows_of(batch)]

    with pytest.raises(ProtocolError, match="record of topic 'orders' on broker"):
        rows("fail")
    assert len(rows("skip")) == 2
    assert rows("null")[1]["topic"] == "orders"
    assert caplog.text.count("record of topic 'orders'") == 2


def test_a_body_with_a_wrong_checksum_is_null() -> None:
    record = bytearray(KNOWN.encode())
    record[8] ^= 1
    batches = RowBatches(RowDecoder(PROJECTION, check_bodies=True), "null")

    (batch,) = batches.of(*joined([bytes(record)]), BROKER)

    (row,) = rows_of(batch)
    assert (row["body"], row["queueOffset"]) == (None, KNOWN.queue_offset)


def test_many_unreadable_records_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    assert _rows("skip", [_unreadable(number) for number in range(100)]) == []

    assert len(caplog.messages) == LOGGED_MAX + 1
    assert caplog.messages[-1] == "unreadable messages count=100"
