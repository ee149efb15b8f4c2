"""Which batches a table of files has.

Spark drops a batch whose number the table has already. So a checkpoint that is new, or restored from
a backup, would lose rows without a word. Its pipeline is refused instead.
"""

from __future__ import annotations

from typing import Any, Final

from pyspark.sql import SparkSession

from orbitmq.errors import SettingsError

TABLE_LOG: Final = "_spark_metadata"
_OFFSETS: Final = "offsets"
_NONE: Final = -1


def check_same_state(spark: SparkSession, *, query: str, table: str, checkpoint: str) -> None:
    """Raise SettingsError if a table has batches that the checkpoint of its query does not know."""
    written = _last_batch(spark, f"{table}/{TABLE_LOG}")
    planned = _last_batch(spark, f"{checkpoint}/{_OFFSETS}")
    if written <= planned:
        return
    known = f"knows of batches up to {planned}" if planned != _NONE else "is new"
    raise SettingsError(
        f"{query}: the table in {table} has batches up to {written}, and the checkpoint in "
        f"{checkpoint} {known}: rows would be left out",
        hint="run it with the state that wrote the table, or move the table away",
    )


def _last_batch(spark: SparkSession, folder: str) -> int:
    """The highest batch that has a file in a folder, on whatever file system that is."""
    # Hadoop's, as Spark itself writes these.
    java: Any = spark.sparkContext._jvm
    path = java.org.apache.hadoop.fs.Path(folder)
    files = path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
    if not files.exists(path):
        return _NONE
    names = [one.getPath().getName().removesuffix(".compact") for one in files.listStatus(path)]
    return max((int(name) for name in names if name.isascii() and name.isdigit()), default=_NONE)
