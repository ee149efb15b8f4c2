"""Envelopes of Debezium and Canal become changes of rows, or say why they are none."""

from __future__ import annotations

import base64
import datetime as dt
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from orbitmq.pipelines.decoding.change_bodies import ChangeBodies, changes_of
from orbitmq.pipelines.plan import ChangeDecoding, Column

ROW = pa.struct(
    [
        ("id", pa.int64()),
        ("item", pa.string()),
        ("price", pa.decimal128(8, 2)),
        ("paid", pa.bool_()),
        ("day", pa.date32()),
        ("placed", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("weight", pa.float64()),
        ("photo", pa.binary()),
        ("tags", pa.list_(pa.string())),
        ("size", pa.struct([("width", pa.int32())])),
        ("notes", pa.map_(pa.string(), pa.int64())),
    ]
)
NULLS = dict.fromkeys([one.name for one in ROW])
NOON = dt.datetime(2026, 1, 31, 12, 30, 0, 123456, dt.UTC)
NOON_US = 1_769_862_600_123_456


def decoded(format_: str, body: Any, *, timestamps: str = "") -> dict[str, Any]:
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    return ChangeBodies(format_, timestamps, ROW).decoded(text)


def changes(format_: str, body: Any, *, timestamps: str = "") -> list[dict[str, Any]]:
    found = decoded(format_, body, timestamps=timestamps)
    assert found["reason"] is None, found
    rows: list[dict[str, Any]] = found["changes"]
    # They are what Arrow takes.
    for where in ("before", "after"):
        pa.array([one[where] for one in rows], ROW)
    return rows


def reason(format_: str, body: Any) -> str:
    found = decoded(format_, body)
    assert found["changes"] is None
    return str(found["reason"])


def debezium(op: str, before: Any, after: Any) -> dict[str, Any]:
    source = {"version": "3.0.0.Final", "connector": "postgresql", "ts_ms": NOON_US // 1000}
    return {
        "before": before,
        "after": after,
        "source": source,
        "op": op,
        "ts_ms": 1,
        "transaction": None,
    }


def canal(kind: str, rows: Any, old: Any = None, **more: Any) -> dict[str, Any]:
    return {
        "data": rows, "database": "shop", "es": NOON_US // 1000, "id": 3, "isDdl": False,
        "mysqlType": {"id": "bigint"}, "old": old, "pkNames": ["id"], "sql": "", "sqlType": {"id": -5},
        "table": "orders", "ts": 1, "type": kind, **more,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("op", "before", "after", "expected"),
    [
        ("c", None, {"id": 1}, "insert"),
        ("r", None, {"id": 1}, "read"),
        ("u", {"id": 1}, {"id": 1}, "update"),
        ("u", None, {"id": 1}, "update"),
        ("d", {"id": 1}, None, "delete"),
    ],
)
def test_debezium_says_what_happened_to_which_row(
    op: str, before: Any, after: Any, expected: str
) -> None:
    envelope = debezium(op, before, after)

    (bare,) = changes("debezium", envelope)
    (wrapped,) = changes("debezium", {"schema": None, "payload": envelope})

    assert (
        bare
        == wrapped
        == {
            "op": expected,
            "before": before and {**NULLS, **before},
            "after": after and {**NULLS, **after},
            "source_time": NOON.replace(microsecond=123000),
        }
    )


def test_values_of_debezium_are_read_by_the_schema_of_their_envelope() -> None:
    fields = [
        {"field": "price", "type": "bytes", "name": "org.apache.kafka.connect.data.Decimal",
         "parameters": {"scale": "2", "connect.decimal.precision": "8"}},
        {"field": "day", "type": "int32", "name": "io.debezium.time.Date"},
        {"field": "placed", "type": "string", "name": "io.debezium.time.ZonedTimestamp"},
        {"field": "local", "type": "int64", "name": "io.debezium.time.MicroTimestamp"},
    ]  # fmt: skip
    schema = {"type": "struct", "fields": [{"field": "after", "type": "struct", "fields": fields}]}
    row = {
        "id": 1, "item": "tea", "paid": True, "weight": 0.5, "day": 20484,
        "price": base64.b64encode((-1250).to_bytes(2, "big", signed=True)).decode(),
        "placed": "2026-01-31T12:30:00.123456Z", "local": NOON_US,
        "photo": base64.b64encode(b"\0\xff").decode(), "tags": ["new", None],
        "size": '{"width": 3}', "notes": {"a": 1}, "unknown": 1,
    }  # fmt: skip

    (change,) = changes("debezium", {"schema": schema, "payload": debezium("c", None, row)})

    assert change["after"] == {
        "id": 1, "item": "tea", "paid": True, "weight": 0.5, "day": dt.date(2026, 1, 31),
        "price": Decimal("-12.50"), "placed": NOON, "local": NOON.replace(tzinfo=None),
        "photo": b"\0\xff", "tags": ["new", None], "size": {"width": 3}, "notes": [("a", 1)],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("unit", "value"),
    [("millis", NOON_US // 1000), ("micros", NOON_US), ("nanos", NOON_US * 1000 + 7)],
)
def test_the_file_may_say_what_numbers_count(unit: str, value: int) -> None:
    (change,) = changes(
        "debezium", debezium("c", None, {"id": 1, "placed": value}), timestamps=unit
    )

    assert change["after"]["placed"].replace(microsecond=0) == NOON.replace(microsecond=0)


def test_without_a_schema_decimals_are_numbers_or_carry_their_scale() -> None:
    scaled = {"scale": 1, "value": base64.b64encode(b"\x7d").decode()}
    given = ["12.50", 12.5, 12, scaled]

    found = [changes("debezium", debezium("c", None, {"price": one}))[0]["after"] for one in given]

    assert [row["price"] for row in found] == [
        Decimal("12.50"),
        Decimal("12.5"),
        12,
        Decimal("12.5"),
    ]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"", "a tombstone"),
        (b"null", "a tombstone"),
        ({"schema": None, "payload": None}, "a tombstone"),
        (b"{", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        ([1], "not a change of a row"),
        ({"id": 1}, "not a change of a row"),
        ({"schema": None, "payload": 7}, "not a change of a row"),
        (debezium("t", None, None), "a truncate"),
        (debezium("m", None, None), "not a change of a row"),
        ({"ddl": "ALTER TABLE orders", "tableChanges": []}, "DDL"),
        ({"status": "BEGIN", "id": "571"}, "not a change of a row"),
        (debezium("c", None, None), "insert without after"),
        (debezium("u", {"id": 1}, None), "update without after"),
        (debezium("d", None, None), "delete without before"),
        (debezium("c", None, {"ID": 1}), "after has none of the columns"),
        (debezium("c", None, 7), "after has none of the columns"),
        (debezium("c", None, {"id": "one"}), "after.id is not int64"),
        (debezium("c", None, {"id": 1.5}), "after.id is not int64"),
        (debezium("c", None, {"id": True}), "after.id is not int64"),
        (debezium("c", None, {"paid": "perhaps"}), "after.paid is not bool"),
        (debezium("c", None, {"price": "MTI="}), "after.price is not decimal128(8, 2)"),
        (debezium("c", None, {"price": {"scale": 1}}), "after.price is not decimal128(8, 2)"),
        (debezium("c", None, {"day": "0000-00-00"}), "after.day is not date32[day]"),
        (debezium("c", None, {"placed": 5}), "after.placed: a number whose unit is not known (timestamps: millis says it)"),
        (debezium("c", None, {"photo": "?"}), "after.photo is not binary"),
        (debezium("c", None, {"tags": {"a": 1}}), "after.tags is not list"),
        (debezium("c", None, {"size": "{"}), "after.size is not struct"),
        (debezium("u", None, {"id": 1, "item": "__debezium_unavailable_value"}), "after.item: the database did not log it"),
    ],
)  # fmt: skip
def test_what_debezium_sends_beside_changes_is_named(body: Any, expected: str) -> None:
    assert reason("debezium", body).startswith(expected)


def test_canal_has_several_rows_in_a_message_and_what_they_were() -> None:
    rows = [
        {"id": "1", "item": "tea", "price": "2.50", "paid": "1"},
        {"id": "2", "item": None, "price": "3.00", "paid": "0"},
        {"id": "3", "item": "cake", "price": "4.00", "paid": "0"},
    ]
    old: list[dict[str, Any] | None] = [{"price": "2.00"}, {"item": "coffee", "paid": None}, None]

    found = changes("canal", canal("UPDATE", rows, old))

    assert [one["op"] for one in found] == ["update"] * 3
    assert [one["source_time"] for one in found] == [NOON.replace(microsecond=123000)] * 3
    first, second, third = found
    assert (first["before"]["price"], first["after"]["price"]) == (Decimal("2.00"), Decimal("2.50"))
    assert (first["before"]["item"], first["after"]["paid"]) == ("tea", True)
    assert (second["before"]["item"], second["after"]["item"]) == ("coffee", None)
    assert (second["before"]["paid"], second["after"]["paid"]) == (None, False)
    assert third["before"] is None


def test_texts_of_canal_become_values() -> None:
    row = {
        "id": "1", "item": "", "price": "-0.50", "paid": "0", "day": "2026-01-31",
        "placed": "2026-01-31 12:30:00.123456", "local": "2026-01-31 12:30:00.123456",
        "weight": "1e3", "photo": "\x00\xff", "tags": '["new"]', "size": '{"width": 3}', "notes": None,
    }  # fmt: skip

    ((inserted,), (deleted,)) = (
        changes("canal", canal(kind, [row])) for kind in ("INSERT", "DELETE")
    )

    assert inserted["after"] == {
        "id": 1, "item": "", "price": Decimal("-0.50"), "paid": False, "day": dt.date(2026, 1, 31),
        "placed": NOON, "local": NOON.replace(tzinfo=None), "weight": 1000.0, "photo": b"\0\xff",
        "tags": ["new"], "size": {"width": 3}, "notes": None,
    }  # fmt: skip
    assert (inserted["op"], inserted["before"]) == ("insert", None)
    assert (deleted["op"], deleted["before"], deleted["after"]) == (
        "delete",
        inserted["after"],
        None,
    )


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (canal("ALTER", None, isDdl=True, sql="ALTER TABLE orders"), "DDL"),
        (canal("TRUNCATE", None, isDdl=True), "a truncate"),
        (canal("QUERY", None), "not a change of a row"),
        (canal("INSERT", []), "not a change of a row"),
        (canal("INSERT", None), "not a change of a row"),
        (
            canal("UPDATE", [{"id": "1"}, {"id": "2"}], [{"id": "0"}]),
            "as many rows in old as in data",
        ),
        (canal("INSERT", [{"id": "1"}, {"id": "one"}]), "after.id is not int64"),
        (canal("INSERT", [{"id": "1"}, {}]), "after has none of the columns"),
        (canal("INSERT", [None]), "insert without after"),
        (canal("INSERT", [{"placed": "0000-00-00 00:00:00"}]), "after.placed is not timestamp"),
        (debezium("c", None, {"id": 1}), "not a change of a row"),
        (b"", "a tombstone"),
    ],
)
def test_a_message_of_canal_is_taken_whole_or_not_at_all(body: Any, expected: str) -> None:
    assert reason("canal", body).startswith(expected)


def test_a_batch_becomes_an_arrow_array_and_what_does_not_fit_it_null() -> None:
    decoding = ChangeDecoding(
        format="debezium", row=(Column(name="price", type="decimal(8, 2)"),), timestamps=""
    )
    row = pa.struct([("price", pa.decimal128(8, 2))])
    change = pa.struct(
        [
            ("op", pa.string()),
            ("before", row),
            ("after", row),
            ("source_time", pa.timestamp("us", "UTC")),
        ]
    )
    form = pa.struct([("changes", pa.list_(change)), ("reason", pa.string())])
    bodies = [
        debezium("c", None, {"price": price}) for price in ("1.50", "1.005", "12345678.9", None)
    ]

    found = changes_of(decoding, form)(pa.array([json.dumps(one).encode() for one in bodies]))

    assert found.type == form
    assert [one and one["changes"][0]["after"]["price"] for one in found.to_pylist()] == [
        Decimal("1.50"), None, None, None,
    ]  # fmt: skip
    assert [one is None for one in found.to_pylist()] == [False, True, True, False]
