"""Every way to use topics from Spark, besides `read` and `write` in a session."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import SparkSession

from orbitmq.client import Message
from tests.spark.conftest import StartCluster
from tests.spark.topics import Topics

PROGRAM_TIMEOUT_S = 600
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def remote(spark: SparkSession) -> Iterator[str]:
    """Where the same Spark accepts programs by Spark Connect."""
    context = spark.sparkContext
    services = context._jvm.org.apache.spark.sql.connect.service  # type: ignore[union-attr]  # Java's
    service = getattr(getattr(services, "SparkConnectService$"), "MODULE$")
    service.start(context._jsc.sc())
    yield f"sc://127.0.0.1:{service.localPort()}"
    defaults = [getattr(service, f"stop$default${number}")() for number in (1, 2)]
    service.stop(*defaults)


def output(*command: str, folder: Path, **environment: str) -> str:
    """The output of a program that must succeed."""
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PROGRAM_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


# --- SQL -----------------------------------------------------------------------------------------


def test_a_topic_is_a_sql_table(spark: SparkSession, topics: Topics) -> None:
    topic, namesrv = topics.filled(5), topics.cluster.namesrv

    spark.sql(
        f"CREATE TABLE read_by_sql USING rocketmq "
        f"OPTIONS (namesrvAddr '{namesrv}', subscribe '{topic}')"
    )
    try:
        rows = spark.sql("SELECT CAST(body AS STRING) AS text FROM read_by_sql").collect()
    finally:
        spark.sql("DROP TABLE read_by_sql")

    assert sorted(row.text for row in rows) == [f"message {number}" for number in range(5)]


def test_a_topic_is_a_sql_view(spark: SparkSession, topics: Topics) -> None:
    topic, namesrv = topics.filled(5), topics.cluster.namesrv

    spark.sql(
        f"CREATE TEMPORARY VIEW seen USING rocketmq "
        f"OPTIONS (namesrvAddr '{namesrv}', subscribe '{topic}')"
    )
    try:
        (row,) = spark.sql("SELECT count(*) AS messages, max(topic) AS topic FROM seen").collect()
    finally:
        spark.catalog.dropTempView("seen")

    assert (row.messages, row.topic) == (5, topic)


def test_a_table_keeps_no_secret(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    topic, namesrv = topics.filled(5), topics.cluster.namesrv
    (tmp_path / "secrets").write_text("accessKey=shop\nsecretKey=hush-hush\n")
    options = f"namesrvAddr '{namesrv}', subscribe '{topic}', secretsPath '{tmp_path}/secrets'"
    spark.sql(f"CREATE TABLE signed USING rocketmq OPTIONS ({options})")

    try:
        spark.table("signed").write.parquet(f"{tmp_path}/copy")
    finally:
        spark.sql("DROP TABLE signed")

    # Spark writes the metadata of columns into every file.
    files = list((tmp_path / "copy").glob("*.parquet"))
    assert files
    assert not any(b"hush-hush" in file.read_bytes() for file in files)
    assert spark.read.parquet(f"{tmp_path}/copy").count() == 5


def test_a_table_shows_later_messages_and_a_view_does_not(
    spark: SparkSession, topics: Topics
) -> None:
    topic, namesrv = topics.filled(5), topics.cluster.namesrv
    source = f"USING rocketmq OPTIONS (namesrvAddr '{namesrv}', subscribe '{topic}')"
    spark.sql(f"CREATE TABLE looked_up {source}")
    spark.sql(f"CREATE TEMPORARY VIEW planned {source}")

    try:
        before = spark.table("looked_up").count(), spark.table("planned").count()
        topics.send(topic, ["one more"])
        after = spark.table("looked_up").count(), spark.table("planned").count()
    finally:
        spark.sql("DROP TABLE looked_up")
        spark.catalog.dropTempView("planned")

    # Spark fixes the view; docs/spark.md describes it.
    assert (before, after) == ((5, 5), (6, 5))


def test_rows_are_inserted_into_a_topic_by_sql(spark: SparkSession, topics: Topics) -> None:
    topic, namesrv = topics.create(), topics.cluster.namesrv
    spark.sql(
        f"CREATE TABLE written_by_sql USING rocketmq "
        f"OPTIONS (namesrvAddr '{namesrv}', subscribe '{topic}', topic '{topic}')"
    )

    try:
        spark.sql(
            "INSERT INTO written_by_sql (body, tags) "
            "VALUES (CAST('one' AS BINARY), 'paid'), (CAST('two' AS BINARY), NULL)"
        )
        (row,) = spark.sql("SELECT count(*) AS messages FROM written_by_sql").collect()
    finally:
        spark.sql("DROP TABLE written_by_sql")

    assert row.messages == 2
    assert sorted((message.body, message.tags) for message in topics.messages(topic)) == [
        (b"one", "paid"),
        (b"two", ""),
    ]


def test_a_sql_table_has_the_columns_that_it_names(spark: SparkSession, topics: Topics) -> None:
    topic, namesrv = topics.filled(3), topics.cluster.namesrv
    for name, columns in (("slim", "body, tags"), ("bodies", "body")):
        spark.sql(
            f"CREATE TABLE {name} USING rocketmq OPTIONS (namesrvAddr '{namesrv}', "
            f"subscribe '{topic}', topic '{topic}', columns '{columns}')"
        )

    try:
        spark.sql("INSERT INTO slim VALUES (CAST('one' AS BINARY), 'paid')")
        rows = spark.sql("SELECT * FROM slim WHERE tags = 'paid'").collect()
        count = spark.table("bodies").count()
        with pytest.raises(AnalysisException, match="only into a table with a column of text"):
            spark.sql("INSERT INTO bodies SELECT body FROM slim")
    finally:
        spark.sql("DROP TABLE slim")
        spark.sql("DROP TABLE bodies")

    assert [(bytes(row.body), row.tags) for row in rows] == [(b"one", "paid")]
    assert (count, topics.cluster.message_count(topic)) == (4, 4)


# --- From table to table -------------------------------------------------------------------------


@dataclass(frozen=True)
class Tables:
    """Two tables: `full`, of a topic with three messages, and `empty`, of one without."""

    topics: Topics
    full: str
    empty: str

    def counts(self) -> tuple[int, int]:
        return self.topics.cluster.message_count(self.full), self.topics.cluster.message_count(
            self.empty
        )


@pytest.fixture
def tables(spark: SparkSession, topics: Topics) -> Iterator[Tables]:
    made = Tables(topics, full=topics.filled(3), empty=topics.create())
    namesrv = topics.cluster.namesrv
    for name, topic in (("full", made.full), ("empty", made.empty)):
        spark.sql(
            f"CREATE TABLE {name} USING rocketmq "
            f"OPTIONS (namesrvAddr '{namesrv}', subscribe '{topic}', topic '{topic}')"
        )
    yield made
    spark.sql("DROP TABLE full")
    spark.sql("DROP TABLE empty")


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO empty SELECT * FROM full",
        "INSERT INTO empty (body) SELECT body FROM full",
        "INSERT INTO empty (topic, body) SELECT topic, body FROM full",
        "INSERT INTO empty BY NAME SELECT topic, body, tags FROM full",
        "INSERT INTO empty WITH (compression 'zlib') SELECT * FROM full",
        "INSERT INTO empty SELECT * FROM (SELECT * FROM full UNION ALL SELECT * FROM empty)",
    ],
)
def test_rows_of_a_table_go_to_the_table_they_are_inserted_into(
    spark: SparkSession, tables: Tables, statement: str
) -> None:
    spark.sql(statement)

    assert tables.counts() == (3, 3)


def test_dataframes_go_to_the_named_table(spark: SparkSession, tables: Tables) -> None:
    reading = spark.read.format("rocketmq").option("namesrvAddr", tables.topics.cluster.namesrv)

    spark.table("full").writeTo("empty").append()
    spark.table("full").write.insertInto("empty")
    reading.option("subscribe", tables.full).load().createOrReplaceTempView("of_no_table")
    spark.sql("INSERT INTO empty SELECT * FROM of_no_table")

    spark.catalog.dropTempView("of_no_table")
    assert tables.counts() == (3, 9)


def test_rows_of_a_table_go_to_the_cluster_of_the_table_they_are_inserted_into(
    spark: SparkSession, tables: Tables, start_cluster: StartCluster
) -> None:
    abroad = start_cluster()
    abroad.cluster.create_topic(tables.full)
    spark.sql(
        f"CREATE TABLE abroad USING rocketmq "
        f"OPTIONS (namesrvAddr '{abroad.cluster.namesrv}', subscribe '{tables.full}')"
    )

    try:
        spark.sql("INSERT INTO abroad SELECT * FROM full")
    finally:
        spark.sql("DROP TABLE abroad")

    assert tables.counts() == (3, 0)
    assert abroad.cluster.message_count(tables.full) == 3


def test_a_dataframe_of_a_table_goes_where_its_options_and_rows_say(
    spark: SparkSession, tables: Tables, tmp_path: Path
) -> None:
    namesrv = tables.topics.cluster.namesrv
    spark.sql(
        f"CREATE TABLE redirected USING rocketmq "
        f"OPTIONS (namesrvAddr '{namesrv}', subscribe '{tables.full}', topic '{tables.empty}')"
    )

    try:
        spark.table("redirected").write.parquet(f"{tmp_path}/copy")
    finally:
        spark.sql("DROP TABLE redirected")
    frame = spark.read.parquet(f"{tmp_path}/copy")
    frame.write.format("rocketmq").option("namesrvAddr", namesrv).mode("append").save()

    # The option `topic` is that of the table, which the rows do not go to.
    assert tables.counts() == (6, 0)


def test_rows_of_a_table_without_a_target_are_refused(
    spark: SparkSession, tables: Tables, tmp_path: Path
) -> None:
    spark.table("full").write.parquet(f"{tmp_path}/copy")
    frames = [
        spark.table("full"),
        spark.table("full").select("topic", "body"),
        spark.table("full").selectExpr("topic AS keys", "body"),
        spark.read.parquet(f"{tmp_path}/copy"),
    ]

    for frame in frames:
        with pytest.raises(AnalysisException, match="nothing says where they go"):
            frame.write.format("rocketmq").option("topic", tables.empty).mode("append").save()
    with pytest.raises(AnalysisException, match="name the columns"):
        spark.sql("INSERT INTO full SELECT * FROM full")

    assert tables.counts() == (3, 0)
    spark.sql("INSERT INTO full (topic, body) SELECT topic, body FROM full")
    assert tables.counts() == (6, 0)


@pytest.mark.usefixtures("patient_streams")
def test_a_stream_ignores_the_options_of_tables(
    spark: SparkSession, tables: Tables, tmp_path: Path
) -> None:
    writing = spark.readStream.table("full").writeStream.trigger(availableNow=True)

    query = writing.option("checkpointLocation", f"{tmp_path}/checkpoint").toTable("empty")
    with pytest.raises(StreamingQueryException, match="needs all options"):
        query.awaitTermination(PROGRAM_TIMEOUT_S)

    assert tables.counts() == (3, 0)


def test_the_columns_of_a_table_read_another_topic(spark: SparkSession, tables: Tables) -> None:
    reading = spark.read.format("rocketmq").schema(spark.table("empty").schema)
    reading = reading.option("namesrvAddr", tables.topics.cluster.namesrv)

    rows = reading.option("subscribePattern", f"{tables.full}.*").load().collect()

    assert [row.topic for row in rows] == [tables.full] * 3


def test_a_table_whose_options_spark_drops_is_an_error(spark: SparkSession, tables: Tables) -> None:
    namesrv = tables.topics.cluster.namesrv
    using = f"USING rocketmq OPTIONS (namesrvAddr '{namesrv}', subscribe '{tables.empty}')"
    hint = "leave the columns out of CREATE TABLE"

    spark.sql(f"CREATE TABLE own_columns (topic STRING, body BINARY) {using}")
    try:
        with pytest.raises(AnalysisException, match=hint):
            spark.table("own_columns").count()
        with pytest.raises(AnalysisException, match=hint):
            spark.sql("INSERT INTO own_columns SELECT topic, body FROM full")
    finally:
        spark.sql("DROP TABLE own_columns")
    with pytest.raises(AnalysisException, match=hint):
        spark.sql(f"CREATE TABLE selected {using} AS SELECT 'x' AS topic")
    with pytest.raises(AnalysisException, match="nothing says where they go"):
        spark.sql(f"CREATE TABLE selected {using} AS SELECT * FROM full")

    # Its remains would have the note of another table.
    assert not spark.catalog.tableExists("selected")
    assert tables.counts() == (3, 0)


# --- Spark Connect -------------------------------------------------------------------------------


def test_spark_connect_reads_streams_and_writes_topics(
    remote: str, topics: Topics, tmp_path: Path
) -> None:
    topic, other = topics.filled(3), topics.create()
    program = [sys.executable, "-m", "tests.spark.connected_program"]
    arguments = [remote, topics.cluster.namesrv, topic, other, str(tmp_path / "checkpoint")]

    printed = output(*program, *arguments, folder=ROOT)

    assert sorted(printed.splitlines()) == ["message 0", "message 1", "message 2"]
    assert sorted(message.body.decode() for message in topics.messages(other)) == [
        f"message {number}" for number in range(4)
    ]


# --- Declarative Pipelines -----------------------------------------------------------------------


def test_a_declarative_pipeline_goes_from_topic_to_tables_and_to_topic(
    spark: SparkSession, remote: str, start_cluster: StartCluster, tmp_path: Path
) -> None:
    topics = start_cluster()
    topics.send_messages(
        Message("orders", f"order {number}", tags="paid" if number % 2 else "created")
        for number in range(8)
    )
    folder = tmp_path / "pipeline"
    shutil.copytree(ROOT / "examples" / "pipeline", folder)
    spec = folder / "spark-pipeline.yml"
    spec.write_text(spec.read_text().replace("/tmp/orders-pipeline", f"{tmp_path}/storage"))
    program = [str(Path(sys.executable).with_name("spark-pipelines")), "run", "--remote", remote]

    try:
        output(*program, folder=folder, NAMESRV_ADDR=topics.cluster.namesrv)

        counted = spark.table("orders_by_tag").collect()
    finally:
        spark.sql("DROP TABLE IF EXISTS orders_by_tag")
        spark.sql("DROP TABLE IF EXISTS orders")
    assert sorted(tuple(row) for row in counted) == [("created", 4), ("paid", 4)]
    copies = topics.messages("paid-orders")
    assert sorted(message.body.decode() for message in copies) == [
        f"order {number}" for number in (1, 3, 5, 7)
    ]
    assert {message.tags for message in copies} == {"paid"}
