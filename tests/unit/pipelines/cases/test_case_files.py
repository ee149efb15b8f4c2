"""Cases are folders of JSON lines; what is wrong with one is named with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.errors import SettingsError
from orbitmq.pipelines.cases.case_files import (
    RecordedMessage,
    case_names,
    check_name,
    read_case,
    write_expected,
    write_messages,
)
from orbitmq.pipelines.file.pipeline_file import read_pipeline
from orbitmq.pipelines.plan import Pipeline

FILE = """\
namesrv: 127.0.0.1:9876
sources:
  orders: {topic: orders, decode: json, columns: {id: bigint}}
  limits: {table: limits}
steps:
  joined: {sql: SELECT id FROM orders JOIN limits USING (id)}
sinks:
  alerts: {from: joined, topic: alerts}
"""


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    file = tmp_path / "shop.yaml"
    file.write_text(FILE)
    return read_pipeline(file)


def put(pipeline: Pipeline, name: str, text: str) -> None:
    file = pipeline.file.with_suffix(".cases") / "first" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def test_messages_are_read_as_they_were_recorded(pipeline: Pipeline) -> None:
    recorded = [
        RecordedMessage(body=b'{"id": 1, "price": 1.10}', keys=("a", "b"), properties={"c": "d"}),
        RecordedMessage(body='{"id":1,"item":"té"}'.encode(), tags="t", properties={}),
        # Twice the same field: an object would keep one.
        RecordedMessage(body=b'{"id":1,"id":2}', properties={}),
        RecordedMessage(body=b"no {json}", properties={}),
        RecordedMessage(body=b"\xff\x00", properties={}),
        RecordedMessage(body=b"", properties={}),
    ]

    write_messages(pipeline, "first", "orders", recorded)

    read = read_case(pipeline, "first").messages["orders"]
    assert [one.body for one in read] == [
        b'{"id":1,"price":1.10}', *(one.body for one in recorded[1:])
    ]  # fmt: skip
    assert (read[0].keys, read[0].properties, read[1].tags) == (("a", "b"), {"c": "d"}, "t")
    assert case_names(pipeline) == ["first"]


def test_what_a_case_expects_is_by_sink_and_by_source(pipeline: Pipeline) -> None:
    put(pipeline, "sources/orders.jsonl", '{"body": {"id": 1}, "keys": "a"}\n')
    put(pipeline, "sources/limits.jsonl", '{"id": 1}\n')

    write_expected(pipeline, "first", {"alerts": [{"body": {"id": 1}}]}, {"orders": []})

    case = read_case(pipeline, "first")
    assert case.rows == {"alerts": [{"body": {"id": 1}}]}
    assert case.rejected == {"orders": []}
    assert case.tables["limits"].name == "limits.jsonl"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("sources/order.jsonl", "", r"order\.jsonl belongs to nothing .* did you mean orders\?"),
        ("sources/orders.json", "", r"orders\.json belongs to nothing in the pipeline"),
        ("expected/orders.jsonl", "", r"there are alerts, orders\.quarantine"),
        ("sources/orders.jsonl", '\n{"body": 1', r"orders\.jsonl:2: this is not JSON"),
        ("sources/orders.jsonl", "[" * 100_000, r"orders\.jsonl:1: this is not JSON"),
        ("sources/orders.jsonl", "[1]", r"orders\.jsonl:1: a line is an object"),
        ("sources/orders.jsonl", '{"bdy": 1}', r":1: a message has no 'bdy' .*did you mean body\?"),
        ("sources/orders.jsonl", '{"keys": "a"}', r":1: a message has one of body and body_base64"),
        ("sources/orders.jsonl", '{"body_base64": "?"}', r":1: body_base64 cannot be decoded"),
        ("sources/orders.jsonl", '{"body": 1, "tags": 2}', r":1: keys, tags and values .* texts"),
        ("sources/orders.jsonl", '{"body": 1, "properties": {"a": 1}}', r":1: keys, tags and"),
        ("expected/alerts.jsonl", '{"a": 1}\n{"b": 1}', r"alerts\.jsonl:2: .* other columns .*: b"),
    ],
)
def test_a_mistake_is_named_with_its_line(
    pipeline: Pipeline, name: str, text: str, message: str
) -> None:
    put(pipeline, "sources/orders.jsonl", '{"body": 1}')
    put(pipeline, name, text)

    with pytest.raises(SettingsError, match=message):
        read_case(pipeline, "first")


def test_a_case_without_messages_says_how_to_record_some(pipeline: Pipeline) -> None:
    put(pipeline, "sources/limits.jsonl", '{"id": 1}')

    with pytest.raises(SettingsError, match=r"has no messages .*orbitmq pipeline record .*'first'"):
        read_case(pipeline, "first")


@pytest.mark.parametrize("name", ["", "../other", "a/b", ".hidden", "x" * 101])
def test_a_case_is_not_named_like_a_path(name: str) -> None:
    with pytest.raises(SettingsError, match="a case cannot be named"):
        check_name(name)
