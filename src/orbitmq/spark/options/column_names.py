"""Which column people mean who name one that there is none of."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final

# What Spark's Kafka connector calls them.
_OF_KAFKA: Final = {
    "key": "keys",
    "value": "body",
    "partition": "queueId",
    "offset": "queueOffset",
    "timestamp": "storeTimestamp",
    "headers": "properties",
}
# Below this, names look alike by chance: `price` is 0.6 of `topic`.
_LIKENESS_MIN: Final = 0.7


def nearest_column(name: str, there: Iterable[str]) -> str | None:
    """Find the column that a name is meant for; None if there is no telling."""
    spelled = {known.lower(): known for known in there}
    wanted = name.lower()
    if _OF_KAFKA.get(wanted) in spelled.values():
        return _OF_KAFKA[wanted]
    if begun_so := [known for known in spelled if wanted.startswith(known)]:
        return spelled[max(begun_so, key=len)]
    nearest = difflib.get_close_matches(wanted, spelled, n=1, cutoff=_LIKENESS_MIN)
    return spelled[nearest[0]] if nearest else None
