"""Writes a table to a topic with Spark, and reads the topic as a table."""

from __future__ import annotations

from local_cluster import name_server
from orbitmq.spark import session


def main() -> None:
    """Copy rows there and back."""
    with name_server() as address:
        spark = session("batch example")
        orders = spark.createDataFrame(
            [("tea", "paid", 3), ("coffee", "created", 4), ("cake", "paid", 5)],
            "body STRING, tags STRING, flag INT",
        )
        (
            orders.write.format("rocketmq")
            .option("namesrvAddr", address)
            .option("topic", "table-orders")
            .mode("append")
            .save()
        )

        table = (
            spark.read.format("rocketmq")
            .option("namesrvAddr", address)
            .option("subscribe", "table-orders")
            .option("columns", "body, tags, flag")
            .load()
        )
        for row in table.where("tags = 'paid'").orderBy("flag").collect():
            print(f"{row.body.decode()} for {row.flag}, {row.tags}")


if __name__ == "__main__":
    main()
