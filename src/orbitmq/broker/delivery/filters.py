"""Filters: which messages of a queue a subscription accepts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from orbitmq.errors import FilterSyntaxError
from orbitmq.filtering.sql import compile_sql
from orbitmq.filtering.tags import parse_tags
from orbitmq.model.subscriptions import SQL92, TAG
from orbitmq.record.decode import Found, locate
from orbitmq.record.properties import decode_properties

# Some clients send their expression with every pull.
_CACHED_MAX: Final = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """The checks of a message: first on the hash of its tag, then on the record."""

    accepts_tag: Callable[[int], bool] | None = None
    accepts_record: Callable[[bytes], bool] | None = None


EVERYTHING: Final = Filter()


@lru_cache(maxsize=_CACHED_MAX)
def make_filter(expression: str, expression_type: str) -> Filter:
    """Make the filter of an expression; raises FilterSyntaxError if it is invalid."""
    if expression_type in ("", TAG):
        tags = parse_tags(expression)
        return EVERYTHING if tags.tags is None else Filter(accepts_tag=tags.matches)
    if expression_type != SQL92:
        raise FilterSyntaxError(
            expression, 1, f"the expression type {expression_type!r} is unknown; use TAG or SQL92"
        )
    sql = compile_sql(expression)

    def accepts(record: bytes) -> bool:
        places = locate(record, 0, len(record), check_body=False)
        if isinstance(places, Found):
            return False
        return sql.matches(decode_properties(record[places.properties_at :]).get)

    return Filter(accepts_record=accepts)
