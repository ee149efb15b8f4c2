"""Which dead letters a command is about, and how it shows one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

import typer

from orbitmq.cli.moments import parse_moment
from orbitmq.cli.output import time_text
from orbitmq.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from orbitmq.client.aio.admin import Admin
    from orbitmq.client.core.dead_letters import DeadLetter

Group = Annotated[str, typer.Argument(metavar="GROUP", help="The consumer group.")]
Begin = Annotated[
    str, typer.Option("--from", help="Dead since: 2026-01-31T12:30; or 15m, 2h, 3d ago.")
]
Until = Annotated[str, typer.Option("--until", help="Dead until; a time, like --from.")]
Key = Annotated[str, typer.Option(help="Only with this key or id.")]
Cause = Annotated[str, typer.Option(help="Only if the cause contains this text.")]
NOTHING_FOUND: Final = 4
LIST: Final = "orbitmq dlq list"


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which dead letters of a group a command is about."""

    group: str
    begin_ms: int
    end_ms: int
    key: str
    cause: str
    ids: frozenset[str] = frozenset()
    is_narrowed: bool = False

    @property
    def none_found(self) -> str:
        """What to say when there are none, and where to look instead."""
        if self.is_narrowed:
            return f"no dead letter of group {self.group} matches (see all: {LIST} {self.group})"
        return f"group {self.group} has no dead letters (see which groups have some: {LIST})"

    async def find(self, admin: Admin) -> AsyncIterator[DeadLetter]:
        """Yield them, oldest first in each queue."""
        if self.ids:
            for letter in await admin.dead_letters.by_ids(self.group, self.ids):
                died_ms = letter.message.store_ms
                is_in_time = self.begin_ms <= died_ms <= self.end_ms
                if is_in_time and letter.matches(key=self.key, cause=self.cause):
                    yield letter
            return
        letters = admin.dead_letters.find(
            self.group,
            begin_ms=self.begin_ms,
            end_ms=self.end_ms,
            key=self.key,
            cause=self.cause,
        )
        async for letter in letters:
            yield letter


def wanted(
    group: str, begin: str, until: str, key: str, cause: str, ids: Iterable[str] = ()
) -> Wanted:
    """Make it from the flags of a command."""
    now_ms = SystemClock().now_ms()
    begin_ms = parse_moment(begin, now_ms=now_ms) if begin else 0
    return Wanted(
        group,
        begin_ms,
        parse_moment(until, now_ms=now_ms),
        key,
        cause,
        ids=frozenset(ids),
        is_narrowed=bool(begin or key or cause or ids) or until != "now",
    )


def letter_row(letter: DeadLetter) -> dict[str, object]:
    """Describe a dead letter in a row of a list."""
    message = letter.message
    return {
        "dead_since": time_text(message.store_ms),
        "message_id": message.message_id,
        "topic": letter.topic,
        "tags": message.tags,
        "keys": list(message.keys),
        "failures": letter.failures,
        "cause": letter.cause,
    }
