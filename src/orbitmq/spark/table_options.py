"""Options of a table of SQL, which Spark hands over only while the table is made.

For `CREATE TABLE … USING rocketmq OPTIONS (…)` Spark asks which columns there are, with these
options; when the table is read or written, it asks without them. So they are noted on the first
column, whose metadata the catalog keeps and brings along.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote, urlsplit

from pyspark.sql.types import StructField, StructType

NOTE: Final = "rocketmq.options"
# How the catalog calls the options of a table beside its own properties.
_PREFIX: Final = "option."


def options_of_new_table(options: Mapping[str, str]) -> dict[str, str] | None:
    """What a statement gives a table that is being made; None outside of such a statement."""
    if "provider" not in options:
        return None
    given = {
        name.removeprefix(_PREFIX): text
        for name, text in options.items()
        if name.startswith(_PREFIX)
    }
    if "path" in options:
        given["path"] = _local_path(options["path"])
    return given


def _local_path(location: str) -> str:
    """Where a table lies, as Spark notes it: `file:/data/a%20b`."""
    parts = urlsplit(location)
    return unquote(parts.path) if parts.scheme == "file" else location


def with_note(schema: StructType, options: Mapping[str, str]) -> StructType:
    """The columns of a new table, with its options noted."""
    # Every one may be null there, since an INSERT may leave it out.
    fields = [StructField(field.name, field.dataType) for field in schema.fields]
    fields[0].metadata = {NOTE: dict(options)}
    return StructType(fields)


def with_noted(options: Mapping[str, str], schema: StructType) -> dict[str, str]:
    """What is given now, and beside it what was noted when the table was made."""
    noted: dict[str, str] = {}
    for field in schema.fields:
        noted |= field.metadata.get(NOTE, {})
    return {**noted, **{name.lower(): text for name, text in options.items()}}
