"""Administers the queries that write exactly once: what brokers know of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from orbitmq.client.aio.admin.key_values import KeyValues
from orbitmq.errors import (
    CommitError,
    NotSupportedError,
    QueryMissingError,
    RemoteError,
)
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.requests.staged_writes import (
    COORDINATORS,
    FIRST_BATCHES,
    ForgetQuery,
    ListQueries,
    QueryPage,
    QuerySummary,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.client.aio.admin.reach import Reach

_PAGE_QUERIES: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownQuery:
    """A query that writes exactly once, as all brokers together know it."""

    query: str
    # The broker that decides for it.
    coordinator: str
    # What each broker knows, by name.
    at: Mapping[str, QuerySummary]

    @property
    def target(self) -> str:
        """The topic of its rows; empty if each row names its own, or it is not known."""
        return next((each.target for each in self.at.values() if each.target), "")

    @property
    def last_batch(self) -> int:
        """The newest decided batch; -1 before the first."""
        return max((max(each.decided, each.batch) for each in self.at.values()), default=-1)

    @property
    def decided_ms(self) -> int:
        """When that was decided; 0 if it is not known."""
        return max((each.decided_ms for each in self.at.values()), default=0)

    @property
    def rows(self) -> int:
        """The rows of the newest batch."""
        newest = self.last_batch
        return sum(each.rows for each in self.at.values() if each.batch == newest)

    @property
    def staged_bytes(self) -> int:
        """The bytes of those rows as they are staged."""
        newest = self.last_batch
        return sum(each.staged_bytes for each in self.at.values() if each.batch == newest)

    @property
    def complete(self) -> bool:
        """Whether the rows of the newest batch are all in their queues."""
        return all(each.complete for each in self.at.values())


@dataclass(slots=True, eq=False)
class Queries:
    """Lists and forgets queries that write exactly once."""

    _reach: Reach

    async def all(self) -> list[KnownQuery]:
        """List the queries that OrbitMQ's brokers know, in the order of their ids."""
        found: dict[str, dict[str, QuerySummary]] = {}
        for name, address in (await self._reach.masters()).items():
            for summary in (await self.at(address)).queries:
                found.setdefault(summary.query, {})[name] = summary
        return [_known(query, found[query]) for query in sorted(found)]

    async def find(self, query: str) -> KnownQuery:
        """What brokers know of one query."""
        return await self._find(query, await self._reach.masters())

    async def _find(self, query: str, masters: Mapping[str, str]) -> KnownQuery:
        at: dict[str, QuerySummary] = {}
        for name, address in masters.items():
            page = await self._ask(address, ListQueries(query=query, limit=1))
            at.update((name, summary) for summary in page.queries)
        if at:
            return _known(query, at)
        # The brokers may have lost it.
        coordinator = await self._recorded(COORDINATORS, query)
        if coordinator is None:
            raise QueryMissingError(
                f"no broker knows the query {query!r}", hint="orbitmq query list shows all"
            )
        return KnownQuery(query=query, coordinator=coordinator, at={})

    async def forget(self, query: str, *, force: bool = False) -> list[str]:
        """Forget a query on every broker; returns their names.

        Its next batch is then written like the first of a new query, whatever was written before.

        Args:
            query: its id.
            force: forget it though rows of its newest batch are not moved yet, which are lost.
        """
        masters = await self._reach.masters()
        known = await self._find(query, masters)
        if not force:
            _check_can_be_forgotten(known, masters)
        # The coordinator last: until then, the query is refused rather than half known.
        names = sorted(known.at, key=lambda name: (name == known.coordinator, name))
        for name in names:
            await self._reach.ask(masters[name], ForgetQuery(query=query, force=force))
        for namespace in (COORDINATORS, FIRST_BATCHES):
            if await self._recorded(namespace, query) is not None:
                await KeyValues(self._reach).delete(namespace, query)
        return sorted(names)

    async def _recorded(self, namespace: str, query: str) -> str | None:
        """What the name servers have recorded of a query; None if nothing."""
        try:
            return await KeyValues(self._reach).get(namespace, query)
        except RemoteError as error:
            if error.code != ResponseCode.QUERY_NOT_FOUND:
                raise
            return None

    async def at(self, address: str) -> QueryPage:
        """List what one broker knows; a slave tells what its log has."""
        found = QueryPage(queries=[])
        while True:
            after = found.queries[-1].query if found.queries else None
            page = await self._ask(address, ListQueries(after=after, limit=_PAGE_QUERIES))
            if not page.queries:
                return found
            found = msgspec.structs.replace(page, queries=found.queries + page.queries)

    async def _ask(self, address: str, header: ListQueries) -> QueryPage:
        try:
            reply = await self._reach.ask(address, header)
        except NotSupportedError:
            # A RocketMQ broker among ours, or an older release.
            return QueryPage(queries=[])
        return msgspec.json.decode(reply.body, type=QueryPage)


def _known(query: str, at: Mapping[str, QuerySummary]) -> KnownQuery:
    return KnownQuery(query=query, coordinator=next(iter(at.values())).coordinator, at=at)


def _check_can_be_forgotten(known: KnownQuery, masters: Mapping[str, str]) -> None:
    if known.coordinator not in masters:
        raise CommitError(
            f"broker {known.coordinator!r}, which decides for query {known.query!r}, is not running",
            hint="start it first; --force forgets what the other brokers know",
        )
    if not known.complete:
        raise CommitError(
            f"batch {known.last_batch} of query {known.query!r} is not complete: its rows are being "
            "moved",
            hint="wait until they are; --force gives up rows that are not moved yet",
        )
