"""Every way in which people reach topics from Spark, beside `read` and `write` in a session."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from orbitmq.client import Message
from tests.spark.conftest import StartCluster
from tests.spark.topics import Topics

PROGRAM_TIMEOUT_S = 180
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def remote(spark: SparkSession) -> Iterator[str]:
    """Where the same Spark takes programs by Spark Connect."""
    context = spark.sparkContext
    services = context._jvm.org.apache.spark.sql.connect.service  # type: ignore[union-attr]  # Java's
    service = getattr(getattr(services, "SparkConnectService$"), "MODULE$")
    service.start(context._jsc.sc())
    yield f"sc://127.0.0.1:{service.localPort()}"
    defaults = [getattr(service, f"stop$default${number}")() for number in (1, 2)]
    service.stop(*defaults)


def output(*command: str, folder: Path, **environment: str) -> str:
    """What a program prints that must end well."""
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


def test_a_topic_is_a_table_of_sql(spark: SparkSession, topics: Topics) -> None:
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


def test_a_topic_is_a_view_of_sql(spark: SparkSession, topics: Topics) -> None:
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

    # Spark writes what it knows of the columns into every file.
    files = list((tmp_path / "copy").glob("*.parquet"))
    assert files
    assert not any(b"hush-hush" in file.read_bytes() for file in files)
    assert spark.read.parquet(f"{tmp_path}/copy").count() == 5


def test_a_table_shows_what_came_since_and_a_view_does_not(
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

    # The view is Spark's doing, and told in docs/spark.md.
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
