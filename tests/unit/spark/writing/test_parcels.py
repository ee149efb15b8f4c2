"""Which rows are sent together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from orbitmq.model.queues import MessageQueue
from orbitmq.model.unique_ids import UniqueIdRanges
from orbitmq.record.batch import decode_batch
from orbitmq.record.properties import decode_properties
from orbitmq.spark.writing.delivery_marks import TaskMark
from orbitmq.spark.writing.message_rows import RowEncoder
from orbitmq.spark.writing.parcels import ROWS_MAX, Packing, Parcel, copied
from orbitmq.spark.writing.row_targets import BatchTargets, RowTarget
from orbitmq.spark.writing.write_columns import WriteColumns

ORDERS = BatchTargets([RowTarget("orders")])


def _pack(
    columns: dict[str, Any],
    targets: BatchTargets = ORDERS,
    *,
    batch_bytes_max: int = 1_000_000,
    compress_above_bytes: int | None = None,
    rows_max: int = ROWS_MAX,
) -> list[Parcel]:
    rows = pa.RecordBatch.from_pydict(columns)
    encoder = RowEncoder(
        WriteColumns(frozenset(columns)),
        TaskMark(query="q", batch=0, partition=0, attempt=0),
        UniqueIdRanges("127.0.0.1", lambda: 1_700_000_000_000),
        body_bytes_max=1_000_000,
    )
    packing = Packing(
        batch_bytes_max=batch_bytes_max,
        compress_above_bytes=compress_above_bytes,
        rows_max=rows_max,
    )
    return [*packing.pack(encoder.encode(rows, 100), targets, rows, 100)]


def _bodies(parcel: Parcel) -> list[bytes]:
    messages = parcel.messages()
    if messages.is_batch:
        return [each.body for each in decode_batch(messages.body)]
    return [messages.body]


def test_small_rows_go_together() -> None:
    (parcel,) = _pack({"body": [b"a", b"b", b"c"]})

    assert parcel.target == RowTarget("orders")
    assert parcel.count == 3
    assert _bodies(parcel) == [b"a", b"b", b"c"]
    assert parcel.size == len(parcel.messages().body)


def test_a_parcel_is_limited_in_rows_and_bytes() -> None:
    bodies = [b"%d" % number for number in range(2 * ROWS_MAX + 1)]
    one_queue = BatchTargets(
        [RowTarget("orders", MessageQueue(topic="orders", broker_name="broker-a", queue_id=1))]
    )

    by_count = _pack({"body": bodies}, one_queue)
    by_size = _pack({"body": bodies}, one_queue, batch_bytes_max=1000)

    assert [parcel.count for parcel in by_count] == [ROWS_MAX, ROWS_MAX, 1]
    assert all(parcel.size <= 1000 for parcel in by_size)
    for parcels in (by_count, by_size):
        assert [body for parcel in parcels for body in _bodies(parcel)] == bodies


def test_the_limit_of_rows_can_be_set() -> None:
    parcels = _pack({"body": [b"a"] * 1000}, rows_max=100)

    assert [parcel.count for parcel in parcels] == [100] * 10


def test_rows_for_any_queue_make_parcels_for_several_queues() -> None:
    counts = {
        rows: [parcel.count for parcel in _pack({"body": [b"a"] * rows})]
        for rows in (10, 50, 100, 1000, 10 * ROWS_MAX)
    }

    assert counts[10] == [10]
    assert counts[50] == [16, 16, 16, 2]
    assert counts[100] == [25] * 4
    assert counts[1000] == [250] * 4
    assert counts[10 * ROWS_MAX] == [ROWS_MAX] * 10


def test_rows_that_cannot_be_batched_are_sent_alone_and_in_order() -> None:
    parcels = _pack(
        {
            "body": [b"a", b"b", b"c", b"x" * 2000, b"d"],
            "delayLevel": [0, 3, None, None, 0],
            "flag": [1, -2, 3, 4, 5],
        },
        batch_bytes_max=1000,
    )

    assert [(parcel.is_batch, _bodies(parcel)) for parcel in parcels] == [
        (True, [b"a"]),
        (False, [b"b"]),
        (True, [b"c"]),
        (False, [b"x" * 2000]),
        (True, [b"d"]),
    ]
    delayed = parcels[1].messages()
    assert delayed.flag == -2
    assert decode_properties(delayed.properties.encode())["DELAY"] == "3"


def test_compressed_rows_are_sent_alone() -> None:
    parcels = _pack({"body": [b"a", b"xx", b"b"]}, compress_above_bytes=2)

    assert [(parcel.is_batch, _bodies(parcel)) for parcel in parcels] == [
        (True, [b"a"]),
        (False, [b"xx"]),
        (True, [b"b"]),
    ]


def test_rows_for_one_target_go_together_in_order() -> None:
    targets = BatchTargets([RowTarget("orders"), RowTarget("payments")], np.array([1, 0, 1, 0, 0]))

    orders, payments = _pack({"body": [b"a", b"b", b"c", b"d", b"e"]}, targets)

    assert (orders.target.topic, _bodies(orders)) == ("orders", [b"b", b"d", b"e"])
    assert (payments.target.topic, _bodies(payments)) == ("payments", [b"a", b"c"])
    row, rows, first_sequence = orders.row()
    assert (row, rows["body"][row].as_py(), first_sequence) == (1, b"b", 100)


def test_halves_hold_the_same_rows() -> None:
    (parcel,) = _pack({"body": [b"a", b"b", b"c"]})

    first, second = parcel.halves()

    assert _bodies(first) + _bodies(second) == [b"a", b"b", b"c"]
    assert second.row()[0] == 1


def test_halves_continue_the_numbering_of_rows() -> None:
    targets = BatchTargets([RowTarget("orders"), RowTarget("payments")], np.array([1, 0, 1, 0, 0]))
    orders, payments = _pack({"body": [b"a", b"b", b"c", b"d", b"e"]}, targets)

    first, second = orders.halves()

    assert [each.sequence for each in (first, second, payments)] == [100, 101, 103]


def test_copies_send_and_name_the_same_rows_and_hold_only_those() -> None:
    bodies = [b"%d" % number for number in range(5)] + [b"x" * 2000] + [b"y" * 900] * 100
    columns = {"body": bodies, "keys": [f"k{number}" for number in range(len(bodies))]}
    targets = BatchTargets([RowTarget("orders"), RowTarget("payments")], np.arange(len(bodies)) % 2)
    parcels = _pack(columns, targets, batch_bytes_max=1500)
    some = [parcels[0], parcels[-2], next(each for each in parcels if not each.is_batch)]

    copies = copied(copied(some))

    for before, after in zip(some, copies, strict=True):
        assert after.messages() == before.messages()
        assert after.packed() == before.packed()
        assert (after.target, after.count, after.sequence) == (
            before.target,
            before.count,
            before.sequence,
        )
        row, rows, first_sequence = after.row()
        whole_row, whole_rows, whole_first_sequence = before.row()
        assert first_sequence + row == whole_first_sequence + whole_row
        assert rows["keys"][row] == whole_rows["keys"][whole_row]
    assert len({id(each.sent) for each in copies}) == 1
    assert copies[0].sent.held_bytes < 1.2 * sum(each.size for each in some)
    assert some[0].sent.held_bytes > 20 * copies[0].sent.held_bytes
    halves = [half.row()[2] + half.row()[0] for half in copies[0].halves()]
    assert halves == [half.row()[2] + half.row()[0] for half in some[0].halves()]


def test_rows_without_keys_are_copied() -> None:
    (copy,) = copied(_pack({"body": [b"a", b"b"]}))

    assert _bodies(copy) == [b"a", b"b"]
    assert copy.row()[2] == 100


def test_a_row_that_is_sent_alone_can_be_packed_too() -> None:
    (parcel,) = _pack({"body": [b"x" * 2000]}, batch_bytes_max=1000)

    assert not parcel.is_batch
    assert [each.body for each in decode_batch(parcel.packed())] == [b"x" * 2000]


def test_no_rows_make_no_parcel() -> None:
    assert _pack({"body": pa.array([], pa.binary())}) == []
