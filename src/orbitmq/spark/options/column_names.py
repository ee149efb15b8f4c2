"""Suggests the column that a misspelt name meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final

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
