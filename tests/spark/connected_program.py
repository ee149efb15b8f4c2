"""A program of Spark Connect: `python -m tests.spark.connected_program REMOTE NAMESRV FROM TO DIR`.

Prints the messages of one topic, streams them to another, and writes one more to it.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from tests.spark.streams import QUERY_TIMEOUT_S, started


def main(remote: str, namesrv: str, topic: str, other: str, checkpoint: str) -> None:
    """Reach topics in every way that a session has."""
    spark = SparkSession.builder.remote(remote).getOrCreate()
    source = {"namesrvAddr": namesrv, "subscribe": topic, "startingOffsets": "earliest"}
    sink = {"namesrvAddr": namesrv, "topic": other}
    for row in spark.read.format("rocketmq").options(**source).load().collect():
        sys.stdout.write(f"{row.body.decode()}\n")
    stream = spark.readStream.format("rocketmq").options(**source).load().select("body")
    query = started(
        stream.writeStream.format("rocketmq")
        .options(**sink, delivery="exactlyOnce", checkpointLocation=checkpoint)
        .trigger(availableNow=True)
        .start
    )
    assert query.awaitTermination(QUERY_TIMEOUT_S), "the query does not end"
    rows = spark.createDataFrame([("message 3",)], "body string")
    rows.write.format("rocketmq").options(**sink).mode("append").save()


if __name__ == "__main__":
    main(*sys.argv[1:])
