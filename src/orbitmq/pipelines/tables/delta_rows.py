"""The rows of a Delta table as it is now, read by Spark without a JAR.

Delta's log says which files there are, and to which partitions they belong; Spark reads them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.types import StringType, StructField, StructType

from orbitmq.errors import SettingsError
from orbitmq.pipelines.tables.columns import quoted

# Of readers, what is heeded here.
_FEATURES: Final = {"timestampNtz", "deletionVectors", "columnMapping"}
_FEATURES_IN_VERSION: Final = 3
_IN_PATTERNS: Final = re.compile(r"([\[\]{}*?\\,])")
_FILE: Final = "_orbitmq_file"


def delta_rows(path: str, spark: SparkSession) -> DataFrame:
    """The rows of a table; raises SettingsError if they cannot be read."""
    table = _opened(path)
    columns = StructType.fromJson(json.loads(table.schema().to_json()))
    by = table.metadata().partition_columns
    in_files = StructType([one for one in columns if one.name not in by])
    files = pa.table(table.get_add_actions(flatten=False)).to_pylist()
    if not files:
        return spark.createDataFrame([], columns)
    names = [f"{path}/{unquote(one['path'])}" for one in files]
    rows = spark.read.schema(in_files).parquet(*(_IN_PATTERNS.sub(r"\\\1", name) for name in names))
    if not by:
        return rows
    partitions = _partitions(spark, names, files, StructType([columns[name] for name in by]))
    joined = rows.withColumn(_FILE, functions.col("_metadata.file_path")).join(
        functions.broadcast(partitions), _FILE
    )
    return joined.select(*(joined[quoted(one.name)] for one in columns))


def _opened(path: str) -> DeltaTable:
    try:
        table = DeltaTable(path)
        problem = _beyond(table)
    except (DeltaError, OSError) as error:
        raise SettingsError(f"the Delta table {path} cannot be read: {error}") from error
    if problem:
        raise SettingsError(f"the Delta table {path} cannot be read: {problem}")
    return table


def _beyond(table: DeltaTable) -> str:
    """What of a table is more than files of rows; empty if nothing is."""
    protocol = table.protocol()
    beyond = set(protocol.reader_features or ()) - _FEATURES
    if protocol.min_reader_version > _FEATURES_IN_VERSION or beyond:
        named = ", ".join(sorted(beyond)) or f"reader version {protocol.min_reader_version}"
        return f"it needs readers that know {named}"
    if table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
        return "its columns have other names in its files (column mapping)"
    if pa.table(table.deletion_vectors()).num_rows:
        return "rows were deleted from its files (deletion vectors)"
    return ""


def _partitions(
    spark: SparkSession,
    names: Sequence[str],
    files: Sequence[Mapping[str, Any]],
    columns: StructType,
) -> DataFrame:
    """The values of each file's partition, by the file as Spark names it."""
    java: Any = spark.sparkContext._jvm
    path = java.org.apache.hadoop.fs.Path
    system = path(names[0]).getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
    found = [
        (
            path(system.makeQualified(path(name)).toString()).toUri().toString(),
            *(file["partition"][one.name] for one in columns),
        )
        for name, file in zip(names, files, strict=True)
    ]
    return spark.createDataFrame(found, StructType([StructField(_FILE, StringType()), *columns]))
