"""`orbitmq dlq`: list, show, resend and export dead letters."""

from __future__ import annotations

import base64
import itertools
import json
import sys
from collections.abc import AsyncIterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Final

import typer

from orbitmq.cli.administering import NameServers, Yes, administer, client_keywords, confirm
from orbitmq.cli.message_output import message_row, print_sent
from orbitmq.cli.moments import parse_moment
from orbitmq.cli.output import AsJson, show_json, show_one, show_rows, time_text
from orbitmq.client.aio import Producer
from orbitmq.clock import SystemClock
from orbitmq.errors import OrbitError, SettingsError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orbitmq.client.aio.admin import Admin
    from orbitmq.client.core.dead_letters import DeadLetter

Group = Annotated[str, typer.Argument(metavar="GROUP", help="The consumer group.")]
Begin = Annotated[
    str, typer.Option("--from", help="Dead since: 2026-01-31T12:30; or 15m, 2h, 3d ago.")
]
Until = Annotated[str, typer.Option("--until", help="Dead until; a time, like --from.")]
Key = Annotated[str, typer.Option(help="Only with this key or id.")]
Cause = Annotated[str, typer.Option(help="Only if the cause contains this text.")]
_PREVIEWED_MAX: Final = 10
_RATE_MIN: Final = 0.1
_NOTHING_FOUND: Final = 4


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which dead letters of a group a command is about."""

    group: str
    begin_ms: int
    end_ms: int
    key: str
    cause: str
    ids: frozenset[str] = frozenset()

    async def find(self, admin: Admin) -> AsyncIterator[DeadLetter]:
        """Yield them."""
        letters = admin.dead_letters.find(
            self.group,
            begin_ms=self.begin_ms,
            end_ms=self.end_ms,
            key=self.key,
            cause=self.cause,
        )
        async for letter in letters:
            message = letter.message
            if not self.ids or {message.message_id, message.offset_message_id} & self.ids:
                yield letter


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(help="List, show, resend and export dead letters.", no_args_is_help=True)
    group.command("list")(list_letters)
    group.command("show")(show)
    group.command("resend")(resend)
    group.command("export")(export)
    app.add_typer(group, name="dlq")


def list_letters(  # a parameter a flag
    group: Annotated[
        str, typer.Argument(metavar="[GROUP]", help="The group; by default all, with counts.")
    ] = "",
    *,
    begin: Begin = "",
    until: Until = "now",
    key: Key = "",
    cause: Cause = "",
    count: Annotated[int, typer.Option("-c", "--count", min=1, help="At most this many.")] = 64,
    namesrv: NameServers = None,
    as_json: AsJson = False,
) -> None:
    """List dead letters of a group with their causes, or the groups that have some."""
    if not group:
        if begin or key or cause:
            raise SettingsError("dead letters are searched in one group", hint="name the group")
        _list_groups(namesrv, as_json=as_json)
        return
    wanted = _wanted(group, begin, until, key, cause)

    async def ask(admin: Admin) -> list[dict[str, object]]:
        found: list[dict[str, object]] = []
        async for letter in wanted.find(admin):
            found.append(_row(letter))
            if len(found) == count:
                break
        return found

    rows = administer(namesrv, ask)
    show_rows(rows, as_json=as_json, empty=f"group {group} has no such dead letters")
    if not rows:
        raise typer.Exit(_NOTHING_FOUND)


def show(
    group: Group,
    message_ids: Annotated[list[str], typer.Argument(metavar="ID…")],
    *,
    namesrv: NameServers = None,
    as_json: AsJson = False,
) -> None:
    """Show dead letters in full, by their ids."""
    wanted = _wanted(group, "", "now", "", "", message_ids)

    async def ask(admin: Admin) -> list[dict[str, object]]:
        return [
            {**_row(letter), **message_row(letter.message), "topic": letter.topic}
            async for letter in wanted.find(admin)
        ]

    rows = administer(namesrv, ask)
    if as_json:
        show_json(rows)
    for row in rows if not as_json else ():
        show_one(row, as_json=False)
    shown = {str(row[name]) for row in rows for name in ("message_id", "offset_message_id")}
    if missing := [one for one in message_ids if one not in shown]:
        typer.secho(f"group {group} has no dead letter {', '.join(missing)}", err=True)
        raise typer.Exit(_NOTHING_FOUND)


def resend(  # noqa: PLR0913  # a parameter a flag
    group: Group,
    message_ids: Annotated[
        list[str] | None, typer.Argument(metavar="[ID…]", help="By default, all that match.")
    ] = None,
    *,
    begin: Begin = "",
    until: Until = "now",
    key: Key = "",
    cause: Cause = "",
    to: Annotated[
        str,
        typer.Option("--to", help="The topic to send to.", show_default="each one's first topic"),
    ] = "",
    rate: Annotated[float, typer.Option(help="At most this many a second.")] = 100.0,
    preview: Annotated[bool, typer.Option("--preview", help="Show what would be sent.")] = False,
    yes: Yes = False,
    namesrv: NameServers = None,
    as_json: AsJson = False,
) -> None:
    """Send copies of dead letters; they stay where they are, so do not send them twice."""
    _check_rate(rate)
    # The end is fixed: what fails again meanwhile is not sent again.
    wanted = _wanted(group, begin, until, key, cause, message_ids or ())

    async def look(admin: Admin) -> tuple[int, list[dict[str, object]]]:
        count, rows = 0, list[dict[str, object]]()
        async for letter in wanted.find(admin):
            count += 1
            if count <= _PREVIEWED_MAX:
                rows.append({**_row(letter), "to": to or letter.topic})
        return count, rows

    count, rows = administer(namesrv, look)
    if not count:
        typer.secho(f"group {group} has no such dead letters", dim=True, err=True)
        raise typer.Exit(_NOTHING_FOUND)
    if preview or not (yes or as_json):
        show_rows(rows, as_json=as_json)
        if count > len(rows):
            typer.secho(f"… and {count - len(rows)} more", dim=True, err=True)
    if preview:
        return
    confirm(f"send copies of {count} dead letters, {rate:g} a second at most?", yes=yes)

    async def run(admin: Admin) -> None:
        clock = SystemClock()
        began_ms = clock.monotonic_ms()
        async with Producer("orbitmq-cli", **client_keywords(namesrv)) as producer:
            numbers = itertools.count()
            async for letter in wanted.find(admin):
                number = next(numbers)
                due_ms = began_ms + number * 1000 / rate
                await clock.sleep_ms(max(0.0, due_ms - clock.monotonic_ms()))
                with _reporting(letter, number):
                    result = await producer.send(letter.message.as_message(_topic_of(letter, to)))
                print_sent(result, as_json=as_json)

    administer(namesrv, run)


def export(  # a parameter a flag
    group: Group,
    *,
    output: Annotated[
        str, typer.Option("-o", "--output", metavar="FILE", help="A new file; - is stdout.")
    ] = "-",
    begin: Begin = "",
    until: Until = "now",
    key: Key = "",
    cause: Cause = "",
    namesrv: NameServers = None,
) -> None:
    """Write dead letters as JSON, one a line, with their bodies in base64."""
    wanted = _wanted(group, begin, until, key, cause)

    async def run(admin: Admin, file: IO[str]) -> int:
        count = 0
        async for letter in wanted.find(admin):
            file.write(json.dumps(_exported(letter), ensure_ascii=False) + "\n")
            count += 1
        return count

    with _opened(output) as file:
        count = administer(namesrv, lambda admin: run(admin, file))
    typer.secho(f"{count} dead letters of group {group} exported", dim=True, err=True)
    if not count:
        raise typer.Exit(_NOTHING_FOUND)


def _list_groups(namesrv: str | None, *, as_json: bool) -> None:
    async def ask(admin: Admin) -> list[dict[str, object]]:
        return [
            {
                "group": one.group,
                "dead_letters": one.letters,
                "newest": time_text(one.newest_ms),
            }
            for one in await admin.dead_letters.counts()
        ]

    show_rows(administer(namesrv, ask), as_json=as_json, empty="no group has dead letters")


def _wanted(
    group: str,
    begin: str,
    until: str,
    key: str,
    cause: str,
    ids: list[str] | tuple[()] = (),
) -> Wanted:
    now_ms = SystemClock().now_ms()
    begin_ms = parse_moment(begin, now_ms=now_ms) if begin else 0
    return Wanted(group, begin_ms, parse_moment(until, now_ms=now_ms), key, cause, frozenset(ids))


def _row(letter: DeadLetter) -> dict[str, object]:
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


def _exported(letter: DeadLetter) -> dict[str, object]:
    message = letter.message
    return {
        "message_id": message.message_id,
        "group": letter.group,
        "topic": letter.topic,
        "tags": message.tags,
        "keys": list(message.keys),
        "flag": message.flag,
        "failures": letter.failures,
        "cause": letter.cause,
        "born_ms": message.born_ms,
        "dead_since_ms": message.store_ms,
        "broker": message.broker_name,
        "queue": message.queue_id,
        "offset": message.queue_offset,
        "properties": dict(message.properties),
        "body": base64.b64encode(message.body).decode(),
    }


def _check_rate(rate: float) -> None:
    # Also refuses nan, which compares with nothing.
    if not rate >= _RATE_MIN:
        raise SettingsError(f"--rate cannot be {rate}", hint=f"give {_RATE_MIN} or more")


def _topic_of(letter: DeadLetter, to: str) -> str:
    """The topic to send a copy to."""
    topic = to or letter.topic
    if not topic:
        raise SettingsError(
            f"the dead letter {letter.message.message_id} does not say where it came from",
            hint="name the topic to send it to: --to TOPIC",
        )
    return topic


@contextmanager
def _reporting(letter: DeadLetter, sent: int) -> Iterator[None]:
    """Report where a resend stopped, so that the rest can be sent later."""
    try:
        yield
    except OrbitError:
        typer.secho(
            f"stopped at {letter.message.message_id}, dead since {time_text(letter.message.store_ms)};"
            f" {sent} before it were sent",
            err=True,
        )
        raise


@contextmanager
def _opened(output: str) -> Iterator[IO[str]]:
    if output == "-":
        yield sys.stdout
        return
    try:
        file = Path(output).open("x", encoding="utf-8")  # noqa: SIM115  # closed below
    except OSError as error:
        raise SettingsError(
            f"cannot write {output}: {error.strerror}", hint="name a file that does not exist yet"
        ) from error
    with file:
        yield file
