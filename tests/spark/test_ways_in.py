"""Every way in which people reach topics from Spark, beside `read` and `write` in a session."""

from __future__ import annotations

from pyspark.sql import SparkSession

from tests.spark.topics import Topics

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
