"""`format("rocketmq")`: what Spark asks for a reader or a writer of topics.

Spark runs each of these calls in a Python worker of its own, so what a call makes is pickled and
imported there; the parts are imported where they are first needed, since every session that uses
any Python data source imports this module.
"""

from __future__ import annotations

from pyspark.sql.datasource import DataSource


class RocketMQSource(DataSource):
    """Topics of a RocketMQ or OrbitMQ cluster."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "rocketmq"
