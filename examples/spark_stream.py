"""Streams a topic into a Parquet table; run it again on the same folder, and it resumes.

Stop it with Ctrl-C, or let it end by itself with `--once`, as a schedule would.
"""

from __future__ import annotations

import argparse

from orbitmq.spark import LagListener, session


def main() -> None:
    """Read the command line, and stream."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--namesrv", default="127.0.0.1:9876")
    parser.add_argument("--topic", default="orders")
    parser.add_argument("--folder", default="orders-table", help="of the table and its checkpoint")
    parser.add_argument("--once", action="store_true", help="read what is available, then end")
    chosen = parser.parse_args()

    spark = session("stream example")
    listener = LagListener(lambda lag: print(f"batch {lag.batch}: {lag.rows} messages are waiting"))
    spark.streams.addListener(listener)
    messages = (
        spark.readStream.format("rocketmq")
        .option("namesrvAddr", chosen.namesrv)
        .option("subscribe", chosen.topic)
        # From the first message, the first time; afterwards the checkpoint says where.
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 100_000)
        # `orbitmq group lag` shows the progress under this name.
        .option("group", "orders-to-table")
        .load()
        .selectExpr("storeTimestamp", "tags", "keys", "CAST(body AS STRING) AS body")
    )
    trigger = {"availableNow": True} if chosen.once else {"processingTime": "5 seconds"}
    query = (
        messages.writeStream.format("parquet")
        .queryName("orders to table")
        .option("path", f"{chosen.folder}/table")
        .option("checkpointLocation", f"{chosen.folder}/checkpoint")
        .trigger(**trigger)
        .start()
    )
    try:
        query.awaitTermination()
    except KeyboardInterrupt:
        query.stop()
    finally:
        # Otherwise it would also report the next query of this session.
        spark.streams.removeListener(listener)
    print(f"{spark.read.parquet(f'{chosen.folder}/table').count()} rows in {chosen.folder}/table")


if __name__ == "__main__":
    main()
