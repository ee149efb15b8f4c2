"""Rows as messages, compared with messages encoded one by one."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from orbitmq.model import property_names
from orbitmq.model.unique_ids import UniqueIdRanges
from orbitmq.record.batch import BatchedMessage, decode_batch, encode_batch
from orbitmq.record.properties import decode_properties
from orbitmq.spark.writing.delivery_marks import MARK, TaskMark
from orbitmq.spark.writing.message_rows import EncodedRows, RowEncoder
from orbitmq.spark.writing.row_errors import RowRefused
from orbitmq.spark.writing.write_columns import WriteColumns

NOW_MS = 1_700_000_000_000
TASK = TaskMark(query="c0ffee", batch=12, partition=3, attempt=1)

_text = st.one_of(
    st.none(), st.text(st.characters(exclude_characters="\x01\x02", codec="utf-8"), max_size=6)
)
# Some of them are names that columns set, or RocketMQ itself: Hypothesis tries constants of our code.
_key = st.text(st.characters(exclude_characters="\x01\x02 ", codec="utf-8"), min_size=1, max_size=4)
_row = st.fixed_dictionaries(
    {
        "body": st.binary(min_size=1, max_size=20),
        "keys": _text,
        "tags": _text,
        "shardingKey": _text,
        "flag": st.one_of(st.none(), st.integers(-(2**31), 2**31 - 1)),
        "delayLevel": st.one_of(st.none(), st.integers(0, 18)),
        "properties": st.dictionaries(_key, _key, max_size=3),
    }
)
# Dropped from the column of properties, where other columns set them.
_SET_BY_COLUMNS = {"KEYS", "TAGS", "__SHARDINGKEY"}
_SCHEMA = pa.schema(
    {
        "body": pa.binary(),
        "keys": pa.string(),
        "tags": pa.string(),
        "shardingKey": pa.string(),
        "flag": pa.int32(),
        "delayLevel": pa.int32(),
        "properties": pa.map_(pa.string(), pa.string()),
    }
)


def _encoder(*columns: str, **arguments: Any) -> RowEncoder:
    return RowEncoder(
        WriteColumns(frozenset(columns)),
        TASK,
        UniqueIdRanges("127.0.0.1", lambda: NOW_MS),
        **{"body_bytes_max": 100, **arguments},
    )


def _encode(*, sequence: int = 0, **columns: Any) -> list[BatchedMessage]:
    rows = pa.RecordBatch.from_pydict(columns)
    return _decoded(_encoder(*columns).encode(rows, sequence))


def _decoded(encoded: EncodedRows) -> list[BatchedMessage]:
    return decode_batch(b"".join(encoded.messages.to_pylist()))


def _row_with(**properties: str) -> dict[str, Any]:
    nothing = dict.fromkeys(_SCHEMA.names)
    return {**nothing, "body": b"a", "properties": properties}


@given(st.lists(_row, max_size=6))
@example([_row_with(KEYS="k", TAGS="t", colour="red")])
@example([_row_with(UNIQ_KEY="ID", DELAY="3"), _row_with(__SHARDINGKEY="s", REAL_QID="1")])
def test_rows_are_encoded_as_one_by_one(given_rows: list[dict[str, Any]]) -> None:
    rows = pa.RecordBatch.from_pylist(
        [{**row, "properties": list(row["properties"].items())} for row in given_rows], _SCHEMA
    )

    encoded = _encoder(*_SCHEMA.names).encode(rows, 5)

    messages = _decoded(encoded)
    ids = [decode_properties(message.properties)["UNIQ_KEY"] for message in messages]
    assert b"".join(encoded.messages.to_pylist()) == encode_batch(
        BatchedMessage(row["flag"] or 0, row["body"], _properties(row, unique_id, 5 + number))
        for number, (row, unique_id) in enumerate(zip(given_rows, ids, strict=True))
    )
    assert encoded.body_bytes.tolist() == [len(row["body"]) for row in given_rows]
    levels = [row["delayLevel"] or 0 for row in given_rows]
    assert (encoded.delayed is not None) == any(levels)
    if encoded.delayed is not None:
        assert encoded.delayed.tolist() == [level > 0 for level in levels]


def _properties(row: dict[str, Any], unique_id: str, sequence: int) -> bytes:
    """The properties of one row, written one after the other."""
    said = {
        "UNIQ_KEY": unique_id,
        MARK: f"{TASK.prefix}{sequence}",
        "KEYS": row["keys"],
        "TAGS": row["tags"],
        "__SHARDINGKEY": row["shardingKey"],
        "DELAY": str(row["delayLevel"] or ""),
    }
    text = "".join(f"{name}\x01{value}\x02" for name, value in said.items() if value)
    text = text.replace("DELAY\x010\x02", "")
    own = {name: value for name, value in row["properties"].items() if not _is_dropped(name)}
    return (text + "".join(f"{n}\x01{v}\x02" for n, v in own.items())).encode()


def _is_dropped(name: str) -> bool:
    dropped = property_names.NOT_SENT_ON | _SET_BY_COLUMNS | {MARK}
    return name in dropped or name.startswith(property_names.BROKER_PREFIX)


def test_each_row_has_an_id_and_a_mark_of_its_own() -> None:
    first, second = _encode(body=[b"a", b"b"], sequence=7)

    properties = [decode_properties(each.properties) for each in (first, second)]
    assert [each[MARK] for each in properties] == ["c0ffee/12/3/1/7", "c0ffee/12/3/1/8"]
    ids = [each["UNIQ_KEY"] for each in properties]
    assert [len(each) for each in ids] == [32, 32]
    assert int(ids[1], 16) == int(ids[0], 16) + 1


def test_the_body_may_be_text() -> None:
    (message,) = _encode(body=["größe"])

    assert message.body == "größe".encode()


def test_keys_may_be_lists() -> None:
    messages = _encode(body=[b"a"] * 4, keys=pa.array([["one", "two"], None, [], ["three", None]]))

    keys = [decode_properties(each.properties).get("KEYS") for each in messages]
    assert keys == ["one two", None, None, "three"]


@pytest.mark.parametrize("bad", [["x", "a b"], [""], ["\x01"]])
def test_an_invalid_key_is_refused(bad: list[str]) -> None:
    with pytest.raises(RowRefused, match="key") as refused:
        _encode(body=[b"a"] * 3, keys=pa.array([["one", "two"], None, bad]))

    assert refused.value.row == 2


def test_columns_override_properties() -> None:
    raw = "UNIQ_KEY\x01OLD\x02TAGS\x01old\x02KEYS\x01old\x02colour\x01red\x02CLUSTER\x01c"

    with_columns = _encode(body=[b"a"], tags=["new"], keys=[None], properties=[raw])
    without = _encode(body=[b"a"], properties=[raw])

    assert _user(with_columns[0]) == {"TAGS": "new", "colour": "red"}
    assert _user(without[0]) == {"TAGS": "old", "KEYS": "old", "colour": "red"}


def _user(message: BatchedMessage) -> dict[str, str]:
    properties = decode_properties(message.properties)
    assert properties.pop("UNIQ_KEY") != "OLD"
    del properties[MARK]
    return properties


def test_every_message_has_the_namespace() -> None:
    encoder = _encoder("body", namespace="tenant")

    (message,) = _decoded(encoder.encode(pa.RecordBatch.from_pydict({"body": [b"a"]}), 0))

    assert decode_properties(message.properties)["INSTANCE_ID"] == "tenant"


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"body": [b"a", None]}, "null or empty"),
        ({"body": [b"a", b""]}, "null or empty"),
        ({"body": [b"a", b"x" * 101]}, "101 bytes is above the limit of 100"),
        ({"body": [b"a"] * 2, "tags": ["a", "b\x02"]}, "its tags contains"),
        ({"body": [b"a"] * 2, "flag": [0, 2**31]}, "flag cannot be 2147483648"),
        ({"body": [b"a"] * 2, "delayLevel": [0, -1]}, "delayLevel cannot be -1"),
        (
            {"body": [b"a"] * 2, "tags": ["a", "x" * 40_000]},
            "properties take 40.* bytes, above the limit of 32767",
        ),
    ],
)
def test_a_row_that_cannot_be_sent_is_named(columns: dict[str, Any], reason: str) -> None:
    with pytest.raises(RowRefused, match=reason) as refused:
        _encode(**columns)

    assert refused.value.row == 1


def test_no_rows_are_no_messages() -> None:
    rows = pa.RecordBatch.from_pylist([], _SCHEMA)

    assert _decoded(_encoder(*_SCHEMA.names).encode(rows, 0)) == []
