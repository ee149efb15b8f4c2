"""`format("rocketmq")`: makes Spark's readers and writers of topics.

Spark runs each of these calls in a Python worker of its own, so the result of a call is pickled,
and its module imported there. Every session that uses any Python data source imports this module,
so other modules are imported where they are first needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource

from orbitmq.spark.sessions.short_errors import short_errors

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.datasource import DataSourceReader
    from pyspark.sql.types import StructType

    from orbitmq.spark.options.read_options import ReadOptions
    from orbitmq.spark.reading.stream_reader import StreamReader
    from orbitmq.spark.writing.writers import BatchWriter, StreamWriter


# Without one of these the table is only written to.
_READS: Final = frozenset({"subscribe", "subscribepattern", "assign"})


@short_errors
class RocketMQSource(DataSource):
    """Topics of a RocketMQ or OrbitMQ cluster."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "rocketmq"

    def schema(self) -> StructType:
        """The columns, unless the user gives a schema."""
        from orbitmq.spark.options.table_options import options_of_new_table, with_note
        from orbitmq.spark.sessions.worker_process import freeze_loaded_modules

        table = options_of_new_table(self.options)
        if table is not None:
            self._check_table(table)
        columns = self._columns(self.options if table is None else table)
        freeze_loaded_modules()
        return columns if table is None else with_note(columns, table)

    def _check_table(self, given: Mapping[str, str]) -> None:
        from orbitmq.spark.options.read_options import ReadOptions
        from orbitmq.spark.options.secret_options import check_table_has_no_secrets
        from orbitmq.spark.options.write_options import WriteOptions

        check_table_has_no_secrets(given, ReadOptions, WriteOptions)

    def _columns(self, given: Mapping[str, str]) -> StructType:
        from orbitmq.spark.options.column_names import parse_columns
        from orbitmq.spark.rows.schema import table_projection

        lowered = {name.lower(): text for name, text in given.items()}
        if _READS.isdisjoint(lowered):
            return table_projection(parse_columns(lowered.get("columns", ""))).spark_schema
        options = self._read_options(given, streaming=None)
        return table_projection(
            options.column_names,
            properties=options.properties_form,
            may_be_null=options.may_be_null,
        ).spark_schema

    def reader(self, schema: StructType) -> DataSourceReader:
        """Make the reader of a batch."""
        from orbitmq.spark.reading.batch_reader import reader_for
        from orbitmq.spark.rows.schema import projection_of

        options = self._read_options(self._given_to_read(schema), streaming=False)
        return reader_for(options, projection_of(schema, may_be_null=options.may_be_null))

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802  # Spark's
        """Make the reader of a stream."""
        from orbitmq.spark.sessions.worker_process import imports_without_gc

        with imports_without_gc():
            from orbitmq.spark.reading.stream_reader import StreamReader
            from orbitmq.spark.rows.schema import projection_of

            options = self._read_options(self._given_to_read(schema), streaming=True)
            projection = projection_of(schema, may_be_null=options.may_be_null)
            return StreamReader(options, projection)

    def _given_to_read(self, schema: StructType) -> Mapping[str, str]:
        """The user's options, given now or when the table was created."""
        from orbitmq.spark.options.table_options import options_of_read

        return options_of_read(self.options, schema, locators=["namesrvaddr"])

    def _read_options(self, given: Mapping[str, str], *, streaming: bool | None) -> ReadOptions:
        from orbitmq.spark.options.read_options import ReadOptions
        from orbitmq.spark.options.write_options import WriteOptions

        # A SQL table is read and written with the same options.
        return ReadOptions.from_spark(given, streaming=streaming, beside=[WriteOptions])

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:  # noqa: FBT001  # Spark's
        """Make the writer of a batch."""
        from orbitmq.spark.options.table_options import options_of_write
        from orbitmq.spark.options.write_options import WriteOptions
        from orbitmq.spark.writing.writers import BatchWriter

        options = WriteOptions.from_spark(options_of_write(self.options, schema))
        return BatchWriter(options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: FBT001, N802  # Spark's
        """Make the writer of a stream's micro-batches."""
        from orbitmq.spark.options.table_options import options_of_stream_write
        from orbitmq.spark.options.write_options import WriteOptions
        from orbitmq.spark.writing.writers import StreamWriter

        options = WriteOptions.from_spark(options_of_stream_write(self.options))
        return StreamWriter(
            options,
            schema,
            overwrite=overwrite,
            # Spark's own options; it lowercases names.
            checkpoint=self.options.get("checkpointlocation", ""),
            query_name=self.options.get("queryname", ""),
        )
