"""The rows that a read returns: decoded ones with wanted tags, as Spark expects.

Brokers and queue entries know only the hash of a tag, which two tags may share, so tags are compared
here; for that they are decoded even if the user did not ask for the column.
"""

from __future__ import annotations

from functools import cached_property
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from orbitmq.spark.rows.schema import Projection, table_projection

_TAGS: Final = "tags"


class WantedRows:
    """Selects rows and columns of decoded batches."""

    def __init__(self, projection: Projection, tags: frozenset[str] | None) -> None:
        """Return the columns of the projection, of rows with one of the tags; None takes all."""
        self._projection = projection
        self._tags = None if tags is None else pa.array(sorted(tags), pa.string())
        self._is_as_asked = projection.arrow_schema.equals(projection.asked_schema)

    @cached_property
    def decoded(self) -> Projection:
        """The columns to decode."""
        if self._tags is None or _TAGS in self._projection.names:
            return self._projection
        added = table_projection([_TAGS]).spark_schema.fields
        return Projection(StructType([*self._projection.spark_schema.fields, *added]))

    def of(self, decoded: pa.RecordBatch) -> pa.RecordBatch:
        """Drop rows and columns that nobody asked for, and name columns as the user did."""
        rows = decoded
        if self._tags is not None:
            is_wanted = pc.is_in(rows.column(_TAGS), value_set=self._tags)
            if not pc.all(is_wanted).as_py():
                rows = rows.filter(is_wanted)
            rows = rows.select(list(self._projection.names))
        if self._is_as_asked:
            return rows
        return pa.RecordBatch.from_arrays(rows.columns, schema=self._projection.asked_schema)
