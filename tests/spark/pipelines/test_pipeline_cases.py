"""A pipeline is tested on recorded messages, in clusters and folders of the test's own."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

from pyspark.sql import SparkSession

from orbitmq.client import Message
from orbitmq.embedded import Cluster
from orbitmq.pipelines.cases.case_files import read_case
from orbitmq.pipelines.cases.trial import name_servers_of, run_case
from orbitmq.pipelines.file.pipeline_file import read_pipeline
from tests.spark.commands import orbitmq
from tests.spark.topics import Topics

FILE = """\
name: shop
namesrv: {namesrv}
sources:
  orders:
    topic: {orders}
    decode: json
    columns: {{id: bigint, item: string, price: "decimal(8, 2)"}}
    expect:
      has a price: price > 0
  limits:
    table: nowhere
    format: json
    columns: {{item: string, limit: int}}
steps:
  expensive:
    sql: SELECT id, price, orders.item FROM orders JOIN limits USING (item) WHERE price > limit
sinks:
  table:
    from: orders
    parquet: /nowhere/orders
    partition_by: item
  screen:
    from: expensive
    console:
  alerts:
    from: expensive
    topic: alerts
    namesrv: 127.0.0.1:1
    body: concat('order ', id)
    tags: item
"""


def shop(folder: Path, namesrv: str, topic: str) -> Path:
    file = folder / "shop.yaml"
    file.write_text(FILE.format(namesrv=namesrv, orders=topic))
    return file


def put(file: Path, name: str, *lines: str) -> None:
    path = file.with_suffix(".cases") / "first" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines))


def test_a_case_shows_what_each_sink_and_each_quarantine_gets(
    spark: SparkSession, tmp_path: Path
) -> None:
    file = shop(tmp_path, "127.0.0.1:1", "orders")
    put(
        file,
        "sources/orders.jsonl",
        '{"body": {"id": 1, "item": "tea", "price": 120.5}, "keys": "a"}',
        '{"body": {"id": 2, "item": "cake", "price": 5}}',
        '{"body": {"id": 3, "item": "tea", "price": -1}, "keys": "c"}',
        '{"body": "no json"}',
        '{"body_base64": "/wA="}',
    )
    put(file, "sources/limits.jsonl", '{"item": "tea", "limit": 100}')
    pipeline = read_pipeline(file)
    (needed,) = name_servers_of(pipeline)

    with Cluster(in_memory=True) as cluster:
        outcome = run_case(
            pipeline,
            read_case(pipeline, "first"),
            spark=spark,
            name_servers={needed: cluster.namesrv},
            folder=tmp_path / "trial",
        )

    assert sorted(outcome.rows["table"], key=repr) == [
        {"id": 1, "item": "tea", "price": Decimal("120.50")},
        {"id": 2, "item": "cake", "price": Decimal("5.00")},
    ]
    assert outcome.rows["screen"] == [{"id": 1, "item": "tea", "price": Decimal("120.50")}]
    assert outcome.rows["alerts"] == [{"body": "order 1", "keys": None, "tags": "tea"}]
    assert sorted(outcome.rejected["orders"], key=repr) == [
        {"reason": "cannot be decoded", "body": "/wA=", "keys": None, "tags": None},
        {"reason": "cannot be decoded", "body": "no json", "keys": None, "tags": None},
        {
            "reason": "not has a price",
            "body": {"id": 3, "item": "tea", "price": -1},
            "keys": "c",
            "tags": None,
        },
    ]
    assert not (tmp_path / "shop.state").exists()


def test_messages_are_recorded_and_what_differs_is_named(topics: Topics, tmp_path: Path) -> None:
    topic = topics.create(queues=2)
    file = shop(tmp_path, topics.cluster.namesrv, topic)
    topics.send_messages(
        Message(topic, json.dumps({"id": number, "item": "tea", "price": 90 + number}), keys="k")
        for number in range(20)
    )

    recorded = orbitmq("pipeline", "record", file, "first", "--count", "4")
    again = orbitmq("pipeline", "record", file, "first")
    put(file, "sources/limits.jsonl", '{"item": "tea", "limit": 108}')
    put(file, "expected/alerts.jsonl", '{"body": "order 19"}', '{"body": "order 99"}')
    put(file, "expected/table.jsonl", *(f'{{"id": {number}}}' for number in range(16, 20)))
    tested = orbitmq("pipeline", "test", file, "--json")

    assert "4 messages of " in recorded.stdout, recorded.stderr
    assert (again.returncode, "a case first already" in again.stderr) == (1, True)
    assert tested.returncode == 1, tested.stderr
    assert json.loads(tested.stdout) == [
        {"case": "first", "rows_of": "table", "rows": 4, "result": "ok"},
        {"case": "first", "rows_of": "screen", "rows": 1, "result": "not compared"},
        {
            "case": "first",
            "rows_of": "alerts",
            "rows": 1,
            "result": "differs",
            "missing": ['{"body": "order 99"}'],
            "unexpected": [],
        },
        {"case": "first", "rows_of": "quarantine of orders", "rows": 0, "result": "ok"},
    ]
