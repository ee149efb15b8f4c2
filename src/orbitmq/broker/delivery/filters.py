"""Filters: which messages of a queue a subscription accepts.

Some clients send their expression with every pull, so filters are cached, within bounds on their
number and their bytes. Invalid expressions are cached too: refusing one again costs nothing.

Threads: the event loop's; the filters themselves may be used by any.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from orbitmq.errors import FilterSyntaxError
from orbitmq.filtering.sql import compile_sql
from orbitmq.filtering.tags import parse_tags
from orbitmq.model.subscriptions import SQL92, TAG
from orbitmq.record.decode import Found, locate
from orbitmq.record.properties import decode_properties

if TYPE_CHECKING:
    from orbitmq.clock import Clock
    from orbitmq.store.reading.queue_reader import RecordFilter

_CACHED_MAX: Final = 4096
_CACHED_BYTES_MAX: Final = 32 * 1024 * 1024
# What a filter takes in memory, at most, for each character of its expression, and in any case.
_BYTES_PER_CHARACTER: Final = 64
_BYTES_MIN: Final = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """The checks of a message: first on the hash of its tag, then on the record."""

    accepts_tag: Callable[[int], bool] | None = None
    accepts_record: Callable[[bytes], bool] | None = None
    # What it takes in memory, about.
    kept_bytes: int = 0

    def record_filter(self, clock: Clock, time_ms: float) -> RecordFilter | None:
        """The check on records, which stops after some time; it evaluates one record at least."""
        if self.accepts_record is None:
            return None
        accepts, now_ms = self.accepts_record, clock.monotonic_ms
        ends_ms = now_ms() + time_ms
        is_first = True

        def check(record: bytes) -> bool | None:
            nonlocal is_first
            if not is_first and now_ms() >= ends_ms:
                return None
            is_first = False
            return accepts(record)

        return check


EVERYTHING: Final = Filter()


class FilterCache:
    """Filters and refusals by expression, those used last."""

    def __init__(self, *, count_max: int = _CACHED_MAX, bytes_max: int = _CACHED_BYTES_MAX) -> None:
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._outcomes: dict[tuple[str, str], Filter | FilterSyntaxError] = {}
        self.kept_bytes = 0

    def __len__(self) -> int:
        return len(self._outcomes)

    def __contains__(self, key: tuple[str, str]) -> bool:
        return key in self._outcomes

    def get(self, expression: str, expression_type: str) -> Filter:
        """The filter of an expression; raises FilterSyntaxError if it is invalid."""
        key = expression, expression_type
        outcome = self._outcomes.pop(key, None)
        if outcome is None:
            try:
                outcome = _compile(expression, expression_type)
            except FilterSyntaxError as error:
                outcome = error
            self._make_room(_kept_bytes(key))
        # Last in the row, so that it is dropped last.
        self._outcomes[key] = outcome
        if isinstance(outcome, FilterSyntaxError):
            raise outcome.with_traceback(None)
        return outcome

    def _make_room(self, added_bytes: int) -> None:
        self.kept_bytes += added_bytes
        while self._outcomes and (
            self.kept_bytes > self._bytes_max or len(self._outcomes) >= self._count_max
        ):
            oldest = next(iter(self._outcomes))
            del self._outcomes[oldest]
            self.kept_bytes -= _kept_bytes(oldest)


_cache: Final = FilterCache()


def is_cached(expression: str, expression_type: str) -> bool:
    """Whether a filter need not be compiled."""
    return (expression, expression_type) in _cache


def make_filter(expression: str, expression_type: str) -> Filter:
    """The filter of an expression, from the cache; raises FilterSyntaxError if it is invalid."""
    return _cache.get(expression, expression_type)


def _kept_bytes(key: tuple[str, str]) -> int:
    return _BYTES_MIN + _BYTES_PER_CHARACTER * (len(key[0]) + len(key[1]))


def _compile(expression: str, expression_type: str) -> Filter:
    kept_bytes = _kept_bytes((expression, expression_type))
    if expression_type in ("", TAG):
        tags = parse_tags(expression)
        if tags.tags is None:
            return EVERYTHING
        return Filter(accepts_tag=tags.matches, kept_bytes=kept_bytes)
    if expression_type != SQL92:
        raise FilterSyntaxError(
            expression,
            1,
            f"the expression type {expression_type[:60]!r} is unknown; use TAG or SQL92",
        )
    sql = compile_sql(expression)

    def accepts(record: bytes) -> bool:
        places = locate(record, 0, len(record), check_body=False)
        if isinstance(places, Found):
            return False
        return sql.matches(decode_properties(record[places.properties_at :]).get)

    return Filter(accepts_record=accepts, kept_bytes=kept_bytes)
