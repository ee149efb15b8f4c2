"""The topic `orders` as a table, a view of it, and its paid orders in the topic `paid-orders`.

Run it with `spark-pipelines run` in the folder above, as often as there may be new orders. The
environment variable NAMESRV_ADDR says where the name servers are.
"""

from __future__ import annotations

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

NAMESRV = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
spark = SparkSession.active()


@dp.table
def orders() -> DataFrame:
    """Every order that was sent."""
    return (
        spark.readStream.format("rocketmq")
        .option("namesrvAddr", NAMESRV)
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .load()
    )


@dp.materialized_view
def orders_by_tag() -> DataFrame:
    """How many orders there are of each kind."""
    return spark.read.table("orders").groupBy("tags").count()


dp.create_sink(
    "paid_orders",
    "rocketmq",
    {"namesrvAddr": NAMESRV, "topic": "paid-orders", "delivery": "exactlyOnce"},
)


@dp.append_flow(target="paid_orders")
def paid() -> DataFrame:
    """Paid orders, for any RocketMQ client to consume."""
    return spark.readStream.table("orders").where("tags = 'paid'").select("keys", "tags", "body")
