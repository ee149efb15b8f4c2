"""Bounds of a broker's table: entries in all, in a change, in a page of a reply."""

from __future__ import annotations

from collections.abc import Mapping, Sized
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Set

    from orbitmq.errors import OrbitError

V = TypeVar("V")

# Entries that one request creates or changes; each takes about 10 µs on the event loop.
PER_CHANGE_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class TableBounds:
    """How many entries a table takes; beyond that, changes are refused."""

    # What the entries are, in the plural, and the error that refuses them.
    entries: str
    entries_max: int
    refusal: type[OrbitError]

    def check_change(self, wanted: Sized) -> None:
        """Refuse a change of too many entries at once."""
        if len(wanted) > PER_CHANGE_MAX:
            raise self.refusal(
                f"{len(wanted)} {self.entries} at once are more than {PER_CHANGE_MAX}",
                hint="send them in several requests",
            )

    def check_room(self, count: int, added: Set[str]) -> None:
        """Refuse names that do not fit into a table of `count` entries."""
        if count + len(added) > self.entries_max:
            raise self.refusal(
                f"the broker has {count} {self.entries}, of at most {self.entries_max}; "
                f"cannot add {len(added)}, such as {min(added)!r}",
                hint=f"delete unused {self.entries}",
            )


def page_of(table: Mapping[str, V], first: int | None, count_max: int | None) -> dict[str, V]:
    """A page of a table: `count_max` entries from number `first` on; without `count_max`, all.

    Compat: RocketMQ's slaves take a table for complete when its last entry is missing. So a page
    that would leave only one entry for the next has it, too.
    """
    if count_max is None:
        return dict(table)
    first, count = max(0, first or 0), max(1, count_max)
    if first + count == len(table) - 1:
        count += 1
    return dict(islice(table.items(), first, first + count))
