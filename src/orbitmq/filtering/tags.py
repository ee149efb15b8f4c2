"""Filters by tag: `TagA || TagB`, matched by the hash in every queue entry.

Two tags may share a hash, so consumers check the tags again. Order, repetition and spaces in an
expression do not matter; `normalised` is the same for all spellings of one filter.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from orbitmq.errors import FilterSyntaxError
from orbitmq.filtering.java_values import TRIMMED
from orbitmq.java_hash import java_hash

EVERY_TAG: Final = "*"
TAGS_CHARACTERS_MAX: Final = 16_384
TAGS_MAX: Final = 1_000

_SEPARATOR: Final = "||"
# At an end of a tag, or beside a space.
_STRAY_BAR: Final = re.compile(r"(?:^|(?<=\s))\||\|(?=\s|$)")


@dataclass(frozen=True, slots=True)
class TagFilter:
    """The tags a consumer asked for; `None` means all."""

    tags: frozenset[str] | None

    # Perf: hashes are computed for pulls only; a heartbeat compares texts.
    @property
    def hashes(self) -> frozenset[int]:
        """The hashes of the tags."""
        return frozenset(map(java_hash, self.tags or ()))

    @property
    def matches(self) -> Callable[[int], bool]:
        """A function that says whether the hash in a queue entry is that of a wanted tag."""
        return _always if self.tags is None else self.hashes.__contains__

    @property
    def normalised(self) -> str:
        """The one spelling of all equal filters."""
        if self.tags is None:
            return EVERY_TAG
        return f" {_SEPARATOR} ".join(sorted(self.tags))


def parse_tags(expression: str | None) -> TagFilter:
    """Parse a TAG expression as RocketMQ does.

    An empty expression and `*` match every message. `*` among tags or between spaces is a tag like
    any other, and an expression of only spaces matches nothing.
    """
    if not expression or expression == EVERY_TAG:
        return TagFilter(None)
    if len(expression) > TAGS_CHARACTERS_MAX:
        raise FilterSyntaxError(
            expression,
            TAGS_CHARACTERS_MAX + 1,
            f"{len(expression)} characters are above the limit of {TAGS_CHARACTERS_MAX}",
        )
    parts = expression.split(_SEPARATOR)
    if len(parts) > TAGS_MAX:
        raise FilterSyntaxError(
            expression, 1, f"{len(parts)} tags are above the limit of {TAGS_MAX}"
        )
    if not any(parts):
        raise FilterSyntaxError(
            expression, 1, f"expected tags around {_SEPARATOR}, as in TagA || TagB"
        )
    return TagFilter(frozenset(tag for part in parts if (tag := part.strip(TRIMMED))))


def check_typed(expression: str, asked: TagFilter) -> None:
    """Refuse a single bar where a user meant two: RocketMQ takes `paid | sent` for one tag.

    A bar within a word stays: a tag may contain it.
    """
    for tag in asked.tags or ():
        if found := _STRAY_BAR.search(tag):
            raise FilterSyntaxError(
                expression,
                expression.index(tag) + found.start() + 1,
                f"a single | is part of the tag {tag!r}; write {_SEPARATOR} between tags, as in "
                "TagA || TagB",
            )


def _always(_tag_hash: int) -> bool:
    return True
