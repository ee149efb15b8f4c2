"""Options of a table of SQL, which Spark hands over only while the table is made.

For `CREATE TABLE … USING rocketmq OPTIONS (…)` Spark asks which columns there are, with these
options; when the table is read or written, it asks without them. So they are noted on the first
column, whose metadata the catalog keeps and brings along.

Invariant: rows go where a note says only if it is that of the table they are written to. A column
takes its metadata along into every frame, and into Parquet files, so a note alone proves nothing.
Beside it is a seal, by which Spark takes the column for a VARCHAR whose length no other table has:

- Rows of a query go into a table as they are only if all columns agree in name and type. By the
  seal they never do, unless they come from a table with the same options. All others Spark fits:
  it gives each column the metadata of the table's own, and takes the seal off, since it has
  checked the length.
- Where no table is the target (`write.format(…).save()`, streams) columns keep their seals.

So a note without its seal is that of the table that is written to. It is wrong only if the table
itself was made with the columns of another, metadata and all (docs/spark.md warns of it).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Final
from urllib.parse import unquote, urlsplit
from zlib import crc32

from pyspark.sql.types import StructField, StructType

from orbitmq.errors import SettingsError

NOTE: Final = "rocketmq.options"
# What Spark itself calls the metadata that tells the length of a VARCHAR.
SEAL: Final = "__CHAR_VARCHAR_TYPE_STRING"
# No topic has so long a name: the length is there to be compared.
_LENGTH_MIN: Final = 2**30
_NAMESRV: Final = "namesrvaddr"
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
    fields[0].metadata = {NOTE: dict(options), SEAL: f"varchar({_length_for(options)})"}
    return StructType(fields)


def _length_for(options: Mapping[str, str]) -> int:
    return _LENGTH_MIN + crc32(json.dumps(options, sort_keys=True).encode()) % _LENGTH_MIN


def options_of_read(
    given: Mapping[str, str], schema: StructType, *, places: Collection[str]
) -> dict[str, str]:
    """What is given now, and beside it what was noted when the table was made.

    Args:
        given: what Spark hands over.
        schema: the columns to read, of a table or of the user's.
        places: options, in small letters, of which any says where to read. With one of them no
            note counts: the user's schema happens to be that of a table.
    """
    own = _in_small_letters(given)
    noted: dict[str, str] = {}
    if own.keys().isdisjoint(places):
        for field in schema.fields:
            noted |= field.metadata.get(NOTE, {})
    return noted | own


def options_of_write(given: Mapping[str, str], schema: StructType) -> dict[str, str]:
    """What is given now, and beside it what was noted when the target was made, if it is a table.

    Args:
        given: what Spark hands over.
        schema: the columns of the rows, fitted to the target or with notes of where they are from.
    """
    own = _in_small_letters(given)
    noted = [field for field in schema.fields if NOTE in field.metadata]
    if noted and noted == schema.fields[:1] and SEAL not in noted[0].metadata:
        if _NAMESRV in own:
            raise SettingsError(
                f"namesrvAddr={own[_NAMESRV]} is given for a table that has its own",
                hint='leave it out, or write with .format("rocketmq") to no table',
            )
        return {**noted[0].metadata[NOTE], **own}
    if noted and _NAMESRV not in own:
        raise SettingsError(
            "the rows are those of a table of SQL, and nothing says where they go",
            hint='give the options namesrvAddr and topic to .write.format("rocketmq"); into a '
            "table with the same options as theirs, name the columns: "
            "INSERT INTO t (topic, body) SELECT topic, body FROM …",
        )
    return own


def options_of_stream_write(given: Mapping[str, str]) -> dict[str, str]:
    """What is given now: of a stream Spark never tells which table it goes to."""
    own = _in_small_letters(given)
    if _NAMESRV not in own:
        raise SettingsError(
            "the option namesrvAddr is missing",
            hint='.writeStream.option("namesrvAddr", "127.0.0.1:9876") says where the cluster is; '
            "a stream needs all options itself, even if toTable(…) names a table that has them",
        )
    return own


def _in_small_letters(given: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): text for name, text in given.items()}
