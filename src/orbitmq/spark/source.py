"""`format("rocketmq")`: what Spark asks for a reader or a writer of topics.

Spark runs each of these calls in a Python worker of its own, so what a call makes is pickled and
imported there; the parts are imported where they are first needed, since every session that uses
any Python data source imports this module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from orbitmq.spark.writers import BatchWriter, StreamWriter


class RocketMQSource(DataSource):
    """Topics of a RocketMQ or OrbitMQ cluster."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "rocketmq"

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:  # noqa: FBT001  # Spark's
        """Make what writes a batch."""
        from orbitmq.spark.write_options import WriteOptions
        from orbitmq.spark.writers import BatchWriter

        return BatchWriter(WriteOptions.from_spark(self.options), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: FBT001, N802  # Spark's
        """Make what writes a stream's micro-batches."""
        from orbitmq.spark.write_options import WriteOptions
        from orbitmq.spark.writers import StreamWriter

        return StreamWriter(WriteOptions.from_spark(self.options), schema, overwrite=overwrite)
