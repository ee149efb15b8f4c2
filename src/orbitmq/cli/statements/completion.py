"""What may follow at the cursor of the shell: tables, columns, words of SQL."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from prompt_toolkit.completion import Completer, Completion

from orbitmq.cli.administering import client_keywords
from orbitmq.client.aio.admin import Admin
from orbitmq.clock import SystemClock, time_limit
from orbitmq.errors import OrbitError
from orbitmq.model.names import is_system_topic
from orbitmq.pipelines.file.sql_names import tables_in, words_in
from orbitmq.pipelines.queries.system_tables import SYSTEM_TABLES
from orbitmq.pipelines.queries.tables import in_sql
from orbitmq.spark.options.column_names import COLUMN_NAMES

if TYPE_CHECKING:
    from prompt_toolkit.completion import CompleteEvent
    from prompt_toolkit.document import Document

_KEYWORDS: Final = (
    "SELECT FROM WHERE GROUP BY HAVING ORDER BY LIMIT JOIN LEFT INNER FULL CROSS ON USING AS AND OR "
    "NOT IN IS NULL LIKE BETWEEN CASE WHEN THEN ELSE END DISTINCT UNION ALL WITH CAST INTERVAL "
    "DESC ASC EXPLAIN DESCRIBE SHOW TABLES count sum avg min max from_json get_json_object "
    "date_trunc now"
)
_WORD: Final = re.compile(r"(?:`[^`]*|[\w.%|-]+)$")
_TABLES_FOLLOW: Final = frozenset({"from", "join", "describe", "desc", "\\d"})
_TIMEOUT_MS: Final = 1_500
_KNOWN_FOR_MS: Final = 30_000


def suggestions(before: str, topics: Iterable[str]) -> tuple[str, list[str]]:
    """The word that is being written, and what it may become."""
    found = _WORD.search(before)
    begun = found[0] if found is not None else ""
    earlier = before[: len(before) - len(begun)]
    words = earlier.split()
    tables = [in_sql(topic) for topic in topics if not is_system_topic(topic)]
    tables += [table.name for table in SYSTEM_TABLES.values()]
    if words and words[-1].lower() in _TABLES_FOLLOW:
        known: Sequence[str] = tables
    else:
        known = [*_columns(before), *dict.fromkeys(_KEYWORDS.split()), *tables]
    lowered = begun.lower()
    # A name that needs quotes is found without them, too.
    return begun, [
        one
        for one in known
        if one.lower().startswith(lowered) or one.lower().startswith(f"`{lowered}")
    ]


def _columns(text: str) -> list[str]:
    """The columns of the tables that are named so far, or of topics."""
    columns: dict[str, None] = {}
    named = tables_in(text) if words_in(text) else []
    for one in named:
        table = SYSTEM_TABLES.get(one.name.lower()) if one.qualifier else None
        columns |= dict.fromkeys(
            COLUMN_NAMES if table is None else [column.name for column in table.columns]
        )
    return list(columns) or list(COLUMN_NAMES)


class SqlCompleter(Completer):
    """Completes names of the cluster and words of SQL."""

    def __init__(self, topics: Callable[[], Iterable[str]]) -> None:
        self._topics = topics

    def get_completions(self, document: Document, _: CompleteEvent) -> Iterator[Completion]:
        """Yield what the word before the cursor may become."""
        begun, found = suggestions(document.text_before_cursor, self._topics())
        for one in found:
            yield Completion(one, start_position=-len(begun))


class KnownTopics:
    """The topics of the cluster, asked for again after a while; none if nobody answers."""

    def __init__(self, namesrv: str | None) -> None:
        self._namesrv = namesrv
        self._clock = SystemClock()
        self._names: list[str] = []
        self._until_ms = 0.0

    def __call__(self) -> list[str]:
        """The topics."""
        if self._clock.monotonic_ms() >= self._until_ms:
            self._until_ms = self._clock.monotonic_ms() + _KNOWN_FOR_MS
            # Completion cannot show errors.
            try:
                self._names = asyncio.run(self._ask())
            except (OrbitError, OSError, TimeoutError):
                self._names = []
        return self._names

    async def _ask(self) -> list[str]:
        limit = time_limit(self._clock, _TIMEOUT_MS)
        async with limit, Admin(**client_keywords(self._namesrv)) as admin:
            return await admin.topics.names()
