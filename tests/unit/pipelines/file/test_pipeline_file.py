"""A pipeline file is read whole, and every mistake in it is named with its place."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from orbitmq.errors import PackageMissingError, PipelineFileError, SettingsError
from orbitmq.pipelines.file.nodes import NODES_MAX, TEXT_MAX
from orbitmq.pipelines.file.pipeline_file import read_pipeline
from orbitmq.pipelines.plan import (
    ChangeDecoding,
    Column,
    ConsoleSink,
    Decoding,
    DeduplicateStep,
    DeltaSink,
    Expectation,
    ParquetSink,
    Pipeline,
    PythonStep,
    SqlStep,
    TableSource,
    TopicSink,
    TopicSource,
    Watermark,
)

Read = Callable[[str], Pipeline]
Mistakes = Callable[[str], list[str]]

WHOLE = """\
name: order-alerts
namesrv: 127.0.0.1:9876
interval: 10 seconds
state: state
sources:
  orders:
    topic: orders
    start: latest
    decode: json
    columns: {id: bigint, items: "array<struct<name: string, price: decimal(12, 2)>>"}
    expect:
      numbered: id > 0
    watermark: {column: placed, delay: 10 minutes}
    options: {maxOffsetsPerTrigger: 1000}
  raw:
    topic: payments
    namesrv: 127.0.0.2:9876
  customers:
    table: tables/customers
steps:
  paid:
    sql: |
      SELECT * FROM orders
      JOIN raw ON true
  scored:
    python: scoring.py:score
    from: [paid, customers]
sinks:
  table:
    from: scored
    parquet: tables/paid
    partition_by: [day, item]
  alerts:
    from: paid
    topic: alerts
    body: to_json(struct(id))
    keys: id
    guarantee: at-least-once
  look:
    from: paid
    console:
    rows: 5
"""
SMALL = """\
namesrv: 127.0.0.1:9876
sources:
  orders:
    topic: orders
    decode: json
    columns: {id: bigint}
steps:
  paid:
    sql: SELECT * FROM orders
sinks:
  look:
    from: paid
    console:
"""


@pytest.fixture
def read(tmp_path: Path) -> Read:
    (tmp_path / "scoring.py").write_text("def score(paid, customers): ...")

    def read_text(text: str) -> Pipeline:
        file = tmp_path / "file.yaml"
        file.write_text(text)
        return read_pipeline(file)

    return read_text


@pytest.fixture
def mistakes(read: Read, tmp_path: Path) -> Mistakes:
    def of_text(text: str) -> list[str]:
        with pytest.raises(PipelineFileError) as refused:
            read(text)
        return [one.removeprefix(f"{tmp_path}/file.yaml:") for one in refused.value.problems]

    return of_text


def test_a_file_becomes_a_pipeline(read: Read, tmp_path: Path) -> None:
    pipeline = read(WHOLE)

    assert pipeline == Pipeline(
        name="order-alerts",
        file=tmp_path / "file.yaml",
        state=f"{tmp_path}/state",
        quarantine=f"{tmp_path}/state/quarantine",
        interval_ms=10_000,
        sources=(
            TopicSource(
                name="orders",
                topic="orders",
                namesrv="127.0.0.1:9876",
                start="latest",
                options={"maxOffsetsPerTrigger": "1000"},
                decoding=Decoding(
                    format="json",
                    columns=(
                        Column(name="id", type="bigint"),
                        Column(
                            name="items", type="array<struct<name: string, price: decimal(12, 2)>>"
                        ),
                    ),
                    options={},
                ),
                expectations=(Expectation(name="numbered", condition="id > 0"),),
                watermark=Watermark(column="placed", delay_ms=600_000),
            ),
            TopicSource(
                name="raw",
                topic="payments",
                namesrv="127.0.0.2:9876",
                start="earliest",
                options={},
                decoding=None,
                expectations=(),
                watermark=None,
            ),
            TableSource(
                name="customers",
                path=f"{tmp_path}/tables/customers",
                format="parquet",
                columns=(),
                options={},
            ),
        ),
        steps=(
            SqlStep(
                name="paid",
                sql="SELECT * FROM orders\nJOIN raw ON true",
                reads=("orders", "raw"),
                watermark=None,
            ),
            PythonStep(
                name="scored",
                file=tmp_path / "scoring.py",
                function="score",
                reads=("paid", "customers"),
                watermark=None,
            ),
        ),
        sinks=(
            ParquetSink(
                name="table",
                reads="scored",
                path=f"{tmp_path}/tables/paid",
                partition_by=("day", "item"),
            ),
            TopicSink(
                name="alerts",
                reads="paid",
                topic="alerts",
                namesrv="127.0.0.1:9876",
                body="to_json(struct(id))",
                keys="id",
                tags="",
                sharding_key="",
                is_exactly_once=False,
                options={},
            ),
            ConsoleSink(name="look", reads="paid", rows=5),
        ),
    )


def test_what_a_small_file_leaves_out_has_a_default(read: Read, tmp_path: Path) -> None:
    pipeline = read(SMALL)

    assert (pipeline.name, pipeline.interval_ms) == ("file", 0)
    assert pipeline.state == f"{tmp_path}/file.state"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("topic: orders", "topc: orders", "4:5: source orders has no field 'topc' (did you mean topic?)"),
        ("topic: orders", "topic: o/r", "4:12: "),
        ("decode: json", "decode: jsno", "5:13: decode cannot be 'jsno' (did you mean json?)"),
        (
            "columns: {id: bigint}",
            "columns: {id: bigit}",
            "6:19: column id of source orders cannot be 'bigit': 'bigit' is not expected (did you mean bigint?)",
        ),
        (
            "columns: {id: bigint}",
            "columnz: {id: bigint}",
            "6:5: source orders has no field 'columnz' (did you mean columns?)",
        ),
        ("  paid:\n", "  Orders:\n", "8:3: 'Orders' is the name of a source or another step, too"),
        ("FROM orders", "FROM orderz", "9:10: step paid reads 'orderz', which is not known (did you mean orders?)"),
        ("FROM orders", "FROM look", "9:10: step paid reads 'look', which is not known (there are orders)"),
        ("SELECT * FROM orders", "DROP TABLE x", "9:10: step paid is no query (begin with SELECT, WITH or FROM)"),
        ("from: paid", "from: piad", "12:11: sink look reads 'piad', which is not known (did you mean paid?)"),
        ("from: paid", "from: orders", "8:3: nothing reads paid (read it in a step or a sink, or take it out)"),
        ("    console:\n", "", "11:3: sink look needs one of parquet, delta, iceberg, jdbc, topic, console"),
        ("    console:\n", "    console:\n    parquet: p\n", "13:5: sink look has parquet and console: it is one of them"),
        ("    console:\n", "    console:\n    rows: 0\n", "14:11: rows cannot be '0' (it is a number from 1 to 1,000,000,000)"),
        ("namesrv: 127.0.0.1:9876\n", "", "3:5: source orders needs namesrv, or the file one for all (as in namesrv: 127.0.0.1:9876)"),
        ("sinks:\n", "interval: soon\nsinks:\n", "10:11: interval cannot be 'soon' (as in 500 ms, 10 seconds, 2 hours)"),
        ("sinks:\n", "sink:\n", "10:1: a pipeline has no field 'sink' (did you mean sinks?)"),
        ("  look:\n", "  look out:\n", "11:3: a sink cannot be named 'look out' (letters, digits and _; SQL uses it as the name of a table)"),
        ("    topic: orders\n", "    topic: orders\n    topic: others\n", "5:5: 'topic' is there twice, first in line 4"),
        ("sources:\n", "sources: [\n", "this is not YAML"),
        ("    topic: orders\n", "    topic: orders\n    expect: id > 0\n", "5:13: expect has a name for each condition (as in positive: amount > 0)"),
        ("    topic: orders\n", "    topic: orders\n    start: erliest\n", "5:12: start cannot be 'erliest' (did you mean earliest?"),
        ("    topic: orders\n", "    topic: orders\n    options: {Subscribe: x}\n", "5:26: source orders cannot have the option Subscribe: the pipeline sets it (as in topic: orders)"),
        ("    topic: orders\n", "    topic: orders\n    options: {includeBody: no}\n", "the pipeline sets it (it reads whole messages)"),
        ("    topic: orders\n", "    topic: orders\n    options: {tags: a, TAGS: b}\n", "5:30: option TAGS of source orders is there twice"),
        ("    topic: orders\n", "    topic: orders\n    start: latest\n    options: {startingOffsets: x}\n", "(start says it)"),
        ("decode: json", "decode: {format: json, options: {MODE: DROPMALFORMED}}", "the pipeline sets it (what cannot be decoded goes into quarantine)"),
        ("    console:\n", "    topic: out\n    options: {topic: other}\n", "14:22: sink look cannot have the option topic: the pipeline sets it (as in topic: alerts)"),
        ("    console:\n", "    topic: out\n    options: {checkpointLocation: x}\n", "(state says where checkpoints are)"),
        ("    console:\n", "    delta: t\n    schema: fix\n", "14:13: schema cannot be 'fix' (did you mean fixed?)"),
        ("    console:\n", "    delta: t\n    partition: day\n", "14:5: sink look has no field 'partition' (did you mean partition_by?)"),
        ("    console:\n", "    delta: t\n    partition_by: [day, DAY]\n", "14:19: sink look is partitioned by a column twice"),
        ("    console:\n", "    delta: s3://b/t\n", "13:12: a Delta table cannot be at s3://b/t"),
        ("    console:\n", "    iceberg: shop.orders\n", "13:14: an Iceberg table cannot be 'shop.orders' (as in iceberg: lake.shop.orders)"),
        ("    console:\n", "    iceberg: lake..orders\n", "13:14: an Iceberg table cannot be 'lake..orders'"),
        ("    console:\n", "    iceberg: lake.shop.orders\n    partition_by: id\n", "14:5: sink look has no field 'partition_by'"),
        ("    console:\n", "    iceberg: lake.shop.orders\n    catalg: {type: sql}\n", "14:5: sink look has no field 'catalg' (did you mean catalog?)"),
        ("    console:\n", "    delta: a%20[b\n", "its path has '%20'"),
        ("    topic: orders\n    decode: json\n", "    table: t\n    format: detla\n", "5:13: format cannot be 'detla' (did you mean delta?)"),
        ("    topic: orders\n    decode: json\n", "    table: t\n    format: delta\n", "6:5: the log of a Delta table says what is in it, so it has no columns"),
        ("    console:\n", "    parquet: p\n    key: id\n", "14:5: sink look only adds rows, so it cannot have key (of all sinks, jdbc alone replaces and deletes rows yet)"),
        ("    console:\n", "    delta: p\n    apply: changes\n", "14:5: sink look only adds rows, so it cannot have apply"),
        ("    console:\n", "    topic: out\n    key: id\n", "14:5: sink look has no field 'key' (did you mean keys?)"),
        ("decode: json", "decode: debesium", "5:13: decode cannot be 'debesium' (did you mean debezium?)"),
        ("decode: json", "decode: {format: debezium, timestamps: milis}", "5:44: timestamps cannot be 'milis' (did you mean millis?)"),
        ("decode: json", "decode: {format: canal, timestamps: millis}", "decode of source orders has no field 'timestamps'"),
        ("    decode: json\n    columns: {id: bigint}\n", "    decode: canal\n", "5:5: source orders needs columns"),
        ("id: bigint", "_orbitmq_body: bigint", "6:30: a column cannot be named '_orbitmq_body'"),
    ],
)  # fmt: skip
def test_a_mistake_has_its_place_and_the_nearest_name(
    mistakes: Mistakes, old: str, new: str, expected: str
) -> None:
    assert SMALL.count(old) >= 1

    found = mistakes(SMALL.replace(old, new, 1))

    assert any(expected in one for one in found), found


AVRO = "decode: {format: avro, schema: order.avsc"
PROTOBUF = "decode: {format: protobuf, descriptors: shop.pb, message: shop.Order}"


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        ("decode: avro", "5:13: avro needs a schema (as in decode: {format: avro, schema: order.avsc})"),
        ("decode: {format: avro}", "5:5: decode of source orders needs schema (as in schema: order.avsc)"),
        (f"{AVRO}, schemaa: x}}", "decode of source orders has no field 'schemaa' (did you mean schema?)"),
        (AVRO.replace("order", "odd") + "}", "odd.avsc cannot be read"),
        (AVRO.replace("order", "message") + "}", "5:13: the schema has a field 'Message', which no column can be named"),
        (f"{AVRO}, framing: confluent}}", "bodies with Confluent's header name their schemas by ids"),
        (f"{AVRO}, framing: confluent, registry: ftp://x}}", "registry cannot be 'ftp://x'"),
        (f"{AVRO}, registry: 'http://x'}}", "registry and schemas are for bodies that name their schema (framing: confluent)"),
        (f"{AVRO}, framing: confluent, schemas: {{one: order.avsc}}}}", "'one' is no id of a schema"),
        (f"{AVRO}}}\n    columns: {{id: int}}", "6:5: the fields of the schema are the columns (leave columns out)"),
        (PROTOBUF, "shop.pb cannot be read"),
        (PROTOBUF.replace("message", "messagee"), "has no field 'messagee' (did you mean message?)"),
    ],
)  # fmt: skip
def test_mistakes_of_schemas_have_their_places(
    mistakes: Mistakes, tmp_path: Path, new: str, expected: str
) -> None:
    (tmp_path / "order.avsc").write_text(
        '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}'
    )

    (tmp_path / "message.avsc").write_text(
        '{"type": "record", "name": "Order", "fields": [{"name": "Message", "type": "long"}]}'
    )

    found = mistakes(SMALL.replace("    columns: {id: bigint}\n", "").replace("decode: json", new))

    assert any(expected in one for one in found), found


@pytest.mark.parametrize("path", ["p", "./p/", "x/../p"])
def test_two_sinks_cannot_write_one_table(mistakes: Mistakes, path: str) -> None:
    # Spark would drop the batches of one whose numbers the other has written.
    sinks = f"sinks:\n  one: {{from: paid, parquet: p}}\n  two: {{from: orders, parquet: {path}}}\n"

    found = mistakes(SMALL.partition("sinks:")[0] + sinks)

    assert found == [
        "12:3: sink two writes the folder of sink one "
        "(each needs a folder of its own; a step with UNION brings rows together)"
    ]


def test_a_delta_table_has_columns_that_are_fixed_unless_the_file_says_so(
    read: Read, tmp_path: Path
) -> None:
    text = SMALL.replace("console:", "delta: t\n    partition_by: day")

    (fixed,), (growing,) = read(text).sinks, read(f"{text}    schema: add-columns\n").sinks

    assert fixed == DeltaSink(
        name="look", reads="paid", path=f"{tmp_path}/t", partition_by=("day",), adds_columns=False
    )
    assert growing == replace(fixed, adds_columns=True)


def test_a_package_that_a_table_needs_is_named(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    there = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "deltalake" else there(name)
    )

    with pytest.raises(PackageMissingError, match=r"sink look needs .*orbitmq\[spark,delta\]"):
        read(SMALL.replace("console:", "delta: t"))


def test_a_sink_cannot_write_into_a_quarantine(mistakes: Mistakes) -> None:
    text = SMALL.replace("console:", "parquet: file.state/quarantine/orders")

    assert "writes the folder of the quarantine of orders" in mistakes(text)[0]


def test_changes_of_rows_are_columns_of_their_own(read: Read) -> None:
    text = "{format: debezium, timestamps: micros}"

    file = SMALL.replace("decode: json", f"decode: {text}")
    (source,) = read(file.replace("id: bigint", "id: bigint, message: string")).sources

    assert isinstance(source, TopicSource)
    assert source.decoding == ChangeDecoding(
        format="debezium",
        row=(Column(name="id", type="bigint"), Column(name="message", type="string")),
        timestamps="micros",
    )
    assert [(one.name, one.type) for one in source.decoding.columns] == [
        ("op", "string"),
        ("before", "struct<`id`: bigint, `message`: string>"),
        ("after", "struct<`id`: bigint, `message`: string>"),
        ("source_time", "timestamp"),
    ]


def test_a_query_may_define_a_name_that_it_also_reads(read: Read) -> None:
    sql = "WITH orders AS (SELECT id FROM orders) SELECT * FROM orders"

    (step,) = read(SMALL.replace("SELECT * FROM orders", sql)).steps

    assert step.reads == ("orders",)


def test_all_mistakes_are_named_at_once_in_the_order_of_the_file(mistakes: Mistakes) -> None:
    found = mistakes(
        SMALL.replace("json", "jsno").replace("bigint", "bigit").replace("paid", "x y")
    )

    assert [one.partition(":")[0] for one in found] == sorted(
        (one.partition(":")[0] for one in found), key=int
    )
    assert len(found) >= 3


def test_a_query_over_several_lines_has_the_line_of_the_name(mistakes: Mistakes) -> None:
    found = mistakes(WHOLE.replace("JOIN raw", "JOIN rwa"))

    assert found == ["24:10: step paid reads 'rwa', which is not known (did you mean raw?)"]


def test_a_step_cannot_read_what_comes_later(mistakes: Mistakes) -> None:
    later = "steps:\n  early:\n    sql: SELECT * FROM paid\n"

    found = mistakes(SMALL.replace("steps:\n", later))

    assert found == [
        "9:10: step early reads 'paid', which is not known (paid comes later: move it up)"
    ]


DEDUPLICATED = SMALL.replace(
    "sql: SELECT * FROM orders", "deduplicate: {keys: [id, shop]}\n    from: orders"
)
TIMED = DEDUPLICATED.replace(
    "columns:", "watermark: {column: placed, delay: 1 minute}\n    columns:"
)


def test_rows_are_deduplicated_by_keys_as_long_as_a_watermark_says(read: Read) -> None:
    (step,) = read(TIMED).steps

    assert step == DeduplicateStep(name="paid", keys=("id", "shop"), reads=("orders",))


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        (DEDUPLICATED, "8:3: step paid needs a watermark in what it reads"),
        (TIMED.replace("keys: [id, shop]", ""), "10:5: deduplicate of step paid needs keys"),
        (TIMED.replace("shop]", "ID]"), "10:30: deduplicate of step paid has the key ID twice"),
        (TIMED.replace("keys:", "key:"), "10:5: deduplicate of step paid needs keys"),
        (TIMED.replace("    from: orders\n", ""), "9:3: step paid needs from"),
    ],
)
def test_a_deduplication_that_cannot_work_is_refused(
    mistakes: Mistakes, text: str, mistake: str
) -> None:
    assert any(one.startswith(mistake) for one in mistakes(text)), mistakes(text)


def test_a_function_may_set_a_watermark_itself(read: Read) -> None:
    text = DEDUPLICATED.replace(
        "steps:\n", 'steps:\n  timed: {python: "scoring.py:score", from: orders}\n'
    ).replace("    from: orders\n", "    from: timed\n")

    assert [step.name for step in read(text).steps] == ["timed", "paid"]


def test_a_function_is_looked_for_in_its_file(mistakes: Mistakes) -> None:
    found = mistakes(WHOLE.replace("scoring.py:score", "scoringg.py:score"))

    assert len(found) == 1
    assert found[0].startswith("26:13: there is no file ")
    assert found[0].endswith("(did you mean scoring.py?)")


@pytest.mark.parametrize(
    "text",
    ["", "just a text", "- a\n- list", "a: &x [*x]", "[" * 5000, "a: " + "x" * TEXT_MAX],
    ids=["empty", "text", "list", "endless", "deep", "long"],
)
def test_what_is_no_pipeline_is_refused(mistakes: Mistakes, text: str) -> None:
    assert mistakes(text)


def test_aliases_cannot_make_a_small_file_endless(mistakes: Mistakes) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]

    assert any(f"{NODES_MAX:,}" in one for one in mistakes("\n".join(lines)))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"nowhere\.yaml cannot be read"):
        read_pipeline(tmp_path / "nowhere.yaml")
