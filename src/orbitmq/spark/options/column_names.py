"""The names of columns, those that a table has, and what a misspelt one meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final

from orbitmq.errors import SettingsError

# All that a message has, in the order of a table with all of them.
COLUMN_NAMES: Final = (
    "topic",
    "brokerName",
    "queueId",
    "queueOffset",
    "physicalOffset",
    "msgId",
    "keys",
    "tags",
    "flag",
    "properties",
    "body",
    "bornTimestamp",
    "storeTimestamp",
    "bornHost",
    "storeHost",
    "sysFlag",
    "reconsumeTimes",
)
# Those of a table for which nobody named any.
USUAL_COLUMNS: Final = (
    "topic",
    "brokerName",
    "queueId",
    "queueOffset",
    "msgId",
    "keys",
    "tags",
    "properties",
    "body",
    "storeTimestamp",
)
ALL: Final = "all"

_SPELLED: Final = {name.lower(): name for name in COLUMN_NAMES}
# Our columns by their names in Spark's Kafka connector.
_KAFKA_NAMES: Final = {
    "key": "keys",
    "value": "body",
    "partition": "queueId",
    "offset": "queueOffset",
    "timestamp": "storeTimestamp",
    "headers": "properties",
}
# Below this, names look alike by chance: `price` is 0.6 of `topic`.
_LIKENESS_MIN: Final = 0.7


def parse_columns(text: str) -> tuple[str, ...]:
    """Parse the option `columns`: names in any letter case, `all`, or nothing for the usual ones."""
    given = [part.strip() for part in text.split(",")]
    if given == [""]:
        return USUAL_COLUMNS
    if [name.lower() for name in given] == [ALL]:
        return COLUMN_NAMES
    if "" in given:
        raise SettingsError(
            f"columns={text!r:.200} has an empty name",
            hint="write it as: topic, body; without types",
        )
    names = tuple(column_named(name, where="columns") for name in given)
    check_named_once(names, where="columns")
    return names


def column_named(name: str, *, where: str) -> str:
    """The column of a name, in any letter case; raises SettingsError if there is none."""
    found = _SPELLED.get(name.lower())
    if found is None:
        nearest = nearest_column(name, COLUMN_NAMES)
        raise SettingsError(
            f"{where} has a column {name!r:.200}, which messages do not have",
            hint=f"did you mean {nearest}?"
            if nearest
            else f"the columns are {', '.join(COLUMN_NAMES)}",
        )
    return found


def check_named_once(names: Iterable[str], *, where: str) -> None:
    """Refuse names that are repeated."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise SettingsError(f"{where} has column {name!r} more than once")
        seen.add(name)


def nearest_column(name: str, columns: Iterable[str]) -> str | None:
    """Find the column that a name was meant for; None if no column is close."""
    spelled = {known.lower(): known for known in columns}
    wanted = name.lower()
    if _KAFKA_NAMES.get(wanted) in spelled.values():
        return _KAFKA_NAMES[wanted]
    if prefixes := [known for known in spelled if wanted.startswith(known)]:
        return spelled[max(prefixes, key=len)]
    nearest = difflib.get_close_matches(wanted, spelled, n=1, cutoff=_LIKENESS_MIN)
    return spelled[nearest[0]] if nearest else None
