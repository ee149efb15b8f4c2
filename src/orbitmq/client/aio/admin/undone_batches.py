"""Exactly-once batches that a promotion would undo: a slave's log lacks them.

The slave says which batches its log has. Whoever knows of later ones is asked: coordinators, which
remember what each broker has confirmed; brokers whose rows a lost decision was about; and those of
the group that have more of the log.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from orbitmq.protocol.requests.staged_writes import QuerySummary


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoneBatches:
    """The batches of a query after the last one that a slave has."""

    query: str
    # -1 if the slave has none.
    kept: int
    last: int
    # Who knows of the last one.
    known_by: str
    # The topic of the rows; empty if each names its own, or it is not known.
    target: str = ""


def undone_batches(
    group: str,
    here: Iterable[QuerySummary],
    elsewhere: Mapping[str, Iterable[QuerySummary]],
    beyond: Mapping[str, Iterable[QuerySummary]],
) -> list[UndoneBatches]:
    """Compare what a slave has with what others know, in the order of the queries.

    Args:
        group: the name that the slave shares with its master.
        here: what the slave's log has.
        elsewhere: what the masters of other groups know, by name.
        beyond: what brokers of the same group have, by address.
    """
    own = {summary.query: summary for summary in here}
    found: dict[str, UndoneBatches] = {}
    known = (
        *((name, *one) for name, them in elsewhere.items() for one in _known_of(group, them)),
        *((name, one, _newest(one)) for name, them in beyond.items() for one in them),
    )
    for name, summary, last in known:
        kept = own.get(summary.query)
        have = -1 if kept is None else _newest(kept)
        before = found.get(summary.query)
        if last > have and (before is None or last > before.last):
            found[summary.query] = UndoneBatches(
                query=summary.query,
                kept=have,
                last=last,
                known_by=name,
                target=summary.target or (kept.target if kept is not None else ""),
            )
    return [found[query] for query in sorted(found)]


def _newest(summary: QuerySummary) -> int:
    return max(summary.batch, summary.decided)


def _known_of(group: str, summaries: Iterable[QuerySummary]) -> Iterator[tuple[QuerySummary, int]]:
    """The newest batch of each query that a broker knows the group to have."""
    for summary in summaries:
        if summary.coordinator == group:
            # It has rows of it, so that the group has decided it.
            yield summary, summary.batch
        elif group in summary.confirmed:
            yield summary, summary.confirmed[group].batch
