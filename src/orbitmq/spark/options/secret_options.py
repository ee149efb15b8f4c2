"""Secret options: read from a file, and kept out of tables of SQL.

The options of a table are noted on its first column (`table_options.py`), and Spark copies such a
note into the catalog, and into the footer of every Parquet file that is written from the table. So
tables take no secrets; they name a file that has them.

Errors go to logs, so none shows what is in such a file, not even a name: a line may hold nothing
but a secret. They tell the number of the line.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from orbitmq.errors import PropertiesError, SettingsError
from orbitmq.settings import Option, describe
from orbitmq.settings.properties_file import PropertiesFile

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def with_secrets(given: Mapping[str, str], path: str, options: Iterable[Option]) -> dict[str, str]:
    """What is given, and beside it what a file says, `name=value` in each line.

    Args:
        given: names, in any letter case, and texts.
        path: of the file.
        options: those there are; the file takes the secret ones, and whom they belong to.
    """
    try:
        content = Path(path).read_bytes()
    # A path with a zero byte is a ValueError.
    except (OSError, ValueError) as error:
        raise SettingsError(
            f"the file of secretsPath cannot be read: {error}",
            hint="it is looked for where the driver runs; of Spark Connect, the server",
        ) from error
    file = PropertiesFile.parse(content, name=path)
    if file.problems:
        raise file.problems[0]
    taken = {row.name.lower(): row.name for row in options if _may_be_in_a_file(row)}
    for one in file.properties:
        if one.name.lower() not in taken:
            raise PropertiesError(
                f"{path}:{one.line}",
                "the line sets none of the options that a file of secrets takes",
                hint=f"it takes {', '.join(sorted(taken.values()))}, as name=value",
            )
    said = {one.name.lower(): one.value for one in file.properties}
    return {**said, **{name.lower(): text for name, text in given.items()}}


def _may_be_in_a_file(row: Option) -> bool:
    # None of these is checked by its value, so that no error can show it.
    return row.secret or row.field == "access_key"


def check_table_has_no_secrets(
    given: Mapping[str, str], *options_classes: type[DataclassInstance]
) -> None:
    """Refuse secrets among the options of a new table."""
    secrets = {row.name.lower(): row.name for row in describe(*options_classes) if row.secret}
    found = sorted(secrets[name.lower()] for name in given if name.lower() in secrets)
    if found:
        raise SettingsError(
            f"{' and '.join(found)} cannot be given to a table: Spark would keep it in the "
            "catalog, and in files that are written from the table, for everyone to read",
            hint="put it into a file that the option secretsPath names, or make a temporary view",
        )
