"""`format("rocketmq-store")`: what Spark asks for a reader of store directories."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource


class RocketMQStoreSource(DataSource):
    """Messages in the files of a broker's store."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "rocketmq-store"
