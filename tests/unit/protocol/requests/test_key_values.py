"""Requests about key-value configuration: their names on the wire."""

from __future__ import annotations

import pytest

from orbitmq import java_json
from orbitmq.protocol.headers import Header
from orbitmq.protocol.requests.key_values import (
    ORDER_TOPIC_NAMESPACE,
    DeleteKeyValue,
    GetKeyValue,
    KeyValueReply,
    KeyValueTable,
    ListKeyValues,
    PutKeyValue,
)

KEY = {"namespace": "N", "key": "k"}


@pytest.mark.parametrize(
    ("header", "code", "fields"),
    [
        (PutKeyValue(**KEY, value="v"), 100, {**KEY, "value": "v"}),
        (GetKeyValue(**KEY), 101, KEY),
        (DeleteKeyValue(**KEY), 102, KEY),
        (ListKeyValues(namespace="N"), 219, {"namespace": "N"}),
    ],
)
def test_a_request_has_its_code_and_javas_field_names(
    header: Header, code: int, fields: dict[str, str]
) -> None:
    assert code == header.CODE
    assert header.encode() == fields
    assert type(header).decode(fields) == header


def test_a_value_comes_back_in_a_field() -> None:
    assert KeyValueReply(value="broker-a:4").encode() == {"value": "broker-a:4"}


def test_a_table_comes_back() -> None:
    table = KeyValueTable(table={"T": "broker-a:4;broker-b:4", "中": "文"})

    encoded = java_json.encode(table)

    assert encoded == '{"table":{"T":"broker-a:4;broker-b:4","中":"文"}}'.encode()
    assert java_json.decode(encoded, KeyValueTable) == table


def test_the_namespace_of_ordered_topics_is_javas() -> None:
    assert ORDER_TOPIC_NAMESPACE == "ORDER_TOPIC_CONFIG"
