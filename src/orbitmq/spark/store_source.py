"""`format("rocketmq-store")`: makes Spark's readers of store directories.

Every session that uses any Python data source imports this module, so other modules are imported
where they are first needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from orbitmq.spark.sessions.short_errors import short_errors

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType


@short_errors
class RocketMQStoreSource(DataSource):
    """Messages in the files of a broker's store."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "rocketmq-store"

    def schema(self) -> StructType:
        """The columns, unless the user gives a schema."""
        from orbitmq.spark.options.table_options import options_of_new_table, with_note
        from orbitmq.spark.sessions.worker_process import freeze_loaded_modules

        table = options_of_new_table(self.options)
        columns = self._columns(self.options if table is None else table)
        freeze_loaded_modules()
        return columns if table is None else with_note(columns, table)

    def _columns(self, given: Mapping[str, str]) -> StructType:
        from orbitmq.spark.options.store_options import StoreOptions
        from orbitmq.spark.rows.schema import table_projection

        options = StoreOptions.from_spark(given)
        return table_projection(
            options.column_names,
            properties=options.properties_form,
            may_be_null=options.may_be_null,
        ).spark_schema

    def reader(self, schema: StructType) -> DataSourceReader:
        """Make the reader of the present content."""
        from orbitmq.spark.options.store_options import StoreOptions
        from orbitmq.spark.options.table_options import options_of_read
        from orbitmq.spark.rows.schema import projection_of
        from orbitmq.spark.scan.store_reader import reader_for

        given = options_of_read(self.options, schema, locators=["path", "paths"])
        options = StoreOptions.from_spark(given)
        return reader_for(options, projection_of(schema, may_be_null=options.may_be_null))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  # Spark's
        """Refuse: files do not signal new messages."""
        from orbitmq.errors import SettingsError

        del schema
        raise SettingsError(
            "format('rocketmq-store') cannot be read as a stream",
            hint="format('rocketmq') streams a topic from its broker",
        )

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001
        """Refuse: only the broker writes its files."""
        from orbitmq.errors import SettingsError

        del schema, overwrite
        raise SettingsError(
            "format('rocketmq-store') cannot be written",
            hint="format('rocketmq') sends rows to the broker",
        )
