"""Options of a SQL table, which Spark hands over only while the table is created.

For `CREATE TABLE … USING rocketmq OPTIONS (…)` Spark asks for the columns with these options; when
the table is read or written, it asks without them. So they are noted on the first column of text,
whose metadata the catalog keeps. A table without one can only be read.

Invariant: rows follow a note only if it is that of the table they are written to. A column carries
its metadata into every DataFrame, and into Parquet files, so a note alone proves nothing. Beside it
is a seal, which makes Spark treat the column as a VARCHAR whose length no other table has:

- Spark writes the rows of a query into a table unchanged only if all columns agree in name and
  type. With the seal they never do, unless they come from a table with the same options. All
  others Spark fits: it gives each column the metadata of the table's own, and removes the seal,
  since it has checked the length.
- Where no table is the target (`write.format(…).save()`, streams) columns keep their seals.

So a note without its seal is that of the table being written. It is wrong only if the table
itself was created with the columns of another, metadata included (docs/spark.md warns of it).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from typing import Final
from urllib.parse import unquote, urlsplit
from zlib import crc32

from pyspark.sql.types import StringType, StructField, StructType

from orbitmq.errors import SettingsError

NOTE: Final = "rocketmq.options"
# The note of a table without a column that can be sealed; it never says where rows go.
READ_NOTE: Final = "rocketmq.readOptions"
# Spark's own name for the metadata with the length of a VARCHAR.
SEAL: Final = "__CHAR_VARCHAR_TYPE_STRING"
# Longer than any topic name: the length is only there to be compared.
_LENGTH_MIN: Final = 2**30
_NAMESRV: Final = "namesrvaddr"
# The catalog's prefix for the options of a table, among its properties.
_PREFIX: Final = "option."


def options_of_new_table(options: Mapping[str, str]) -> dict[str, str] | None:
    """The options in a statement that creates a table; None outside such a statement."""
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
    """The path of a table's location, which Spark writes as `file:/data/a%20b`."""
    parts = urlsplit(location)
    return unquote(parts.path) if parts.scheme == "file" else location


def with_note(schema: StructType, options: Mapping[str, str]) -> StructType:
    """The columns of a new table, with its options noted."""
    # Every column may be null, since an INSERT may leave it out.
    fields = [StructField(field.name, field.dataType) for field in schema.fields]
    noted = first_text(fields)
    if noted is None:
        fields[0].metadata = {READ_NOTE: dict(options)}
    else:
        noted.metadata = {NOTE: dict(options), SEAL: f"varchar({_length_for(options)})"}
    return StructType(fields)


def first_text(fields: Iterable[StructField]) -> StructField | None:
    """The column that the options of a table are noted on: only a text can have the seal."""
    return next((field for field in fields if isinstance(field.dataType, StringType)), None)


def _length_for(options: Mapping[str, str]) -> int:
    return _LENGTH_MIN + crc32(json.dumps(options, sort_keys=True).encode()) % _LENGTH_MIN


def options_of_read(
    given: Mapping[str, str], schema: StructType, *, locators: Collection[str]
) -> dict[str, str]:
    """Options given now, and those noted when the table was created.

    Args:
        given: what Spark hands over.
        schema: the columns to read, a table's or the user's.
        locators: lowercase options that say where to read. If one is given, notes are ignored:
            the user's schema happens to be that of a table.
    """
    own = _lowercase(given)
    noted: dict[str, str] = {}
    if own.keys().isdisjoint(locators):
        for field in schema.fields:
            noted |= field.metadata.get(NOTE, field.metadata.get(READ_NOTE, {}))
    return noted | own


def options_of_write(given: Mapping[str, str], schema: StructType) -> dict[str, str]:
    """Options given now, and those noted when the target was created, if it is a table.

    Args:
        given: what Spark hands over.
        schema: the columns of the rows, fitted to the target, or with notes of their origin.
    """
    own = _lowercase(given)
    noted = [field for field in schema.fields if NOTE in field.metadata]
    if len(noted) == 1 and noted[0] is first_text(schema) and SEAL not in noted[0].metadata:
        if _NAMESRV in own:
            raise SettingsError(
                f"namesrvAddr={own[_NAMESRV]} is given for a table that has its own",
                hint='leave it out, or write with .format("rocketmq") and without a table',
            )
        return {**noted[0].metadata[NOTE], **own}
    if _NAMESRV not in own and any(READ_NOTE in field.metadata for field in schema.fields):
        raise SettingsError(
            "rows cannot be inserted into a table without a column of text, nor sent from one "
            "without a target",
            hint="create the table with columns 'topic, body', or give the options namesrvAddr and "
            'topic to .write.format("rocketmq")',
        )
    if noted and _NAMESRV not in own:
        raise SettingsError(
            "the rows come from a SQL table, and nothing says where they go",
            hint='give the options namesrvAddr and topic to .write.format("rocketmq"); to insert '
            "into a table with the same options, name the columns: "
            "INSERT INTO t (topic, body) SELECT topic, body FROM …",
        )
    return own


def options_of_stream_write(given: Mapping[str, str]) -> dict[str, str]:
    """Options given now: Spark never says which table a stream goes to."""
    own = _lowercase(given)
    if _NAMESRV not in own:
        raise SettingsError(
            "the option namesrvAddr is missing",
            hint='.writeStream.option("namesrvAddr", "127.0.0.1:9876") says where the cluster is; '
            "a stream needs all options, even if toTable(…) names a table that has them",
        )
    return own


def _lowercase(given: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): text for name, text in given.items()}
