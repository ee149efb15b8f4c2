"""Secret options: read from a file, and kept out of SQL tables.

The options of a table are noted on its first column (`table_options.py`), and Spark copies such a
note into the catalog, and into the footer of every Parquet file that is written from the table. So
tables take no secrets; they name a file that has them.

Errors go to logs, so none shows the content of such a file, not even a name: a line may hold
nothing but a secret. They give the line number.
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
    """Add the options in a file, `name=value` per line, to those given.

    Args:
        given: names, in any letter case, and texts.
        path: of the file.
        options: all options; the file may set the secret ones and the access key.
    """
    try:
        content = Path(path).read_bytes()
    # A path with a zero byte is a ValueError.
    except (OSError, ValueError) as error:
        raise SettingsError(
            f"the file of secretsPath cannot be read: {error}",
            hint="it must be on the machine of the driver; with Spark Connect, of the server",
        ) from error
    file = PropertiesFile.parse(content, name=path)
    if file.problems:
        raise file.problems[0]
    taken = {row.name.lower(): row.name for row in options if _may_be_in_a_file(row)}
    for one in file.properties:
        if one.name.lower() not in taken:
            raise PropertiesError(
                f"{path}:{one.line}",
                "the line sets no option that is allowed in a file of secrets",
                hint=f"allowed are {', '.join(sorted(taken.values()))}, as name=value",
            )
    in_file = {one.name.lower(): one.value for one in file.properties}
    return {**in_file, **{name.lower(): text for name, text in given.items()}}


def _may_be_in_a_file(row: Option) -> bool:
    # The values of these are never checked, so no error can show them.
    return row.secret or row.field == "access_key"


def check_table_has_no_secrets(
    given: Mapping[str, str], *options_classes: type[DataclassInstance]
) -> None:
    """Refuse secrets among the options of a new table."""
    secrets = {row.name.lower(): row.name for row in describe(*options_classes) if row.secret}
    found = sorted(secrets[name.lower()] for name in given if name.lower() in secrets)
    if found:
        raise SettingsError(
            f"{' and '.join(found)} cannot be an option of a table: Spark would copy it into the "
            "catalog, and into files written from the table, for everyone to read",
            hint="put it into a file that the option secretsPath names, or use a temporary view",
        )
