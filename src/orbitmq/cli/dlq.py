"""`orbitmq dlq`: list, show, resend and export dead letters."""

from __future__ import annotations

import base64
import json
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer

from orbitmq.cli.administering import NameServers, administer
from orbitmq.cli.dead_letters.resending import resend
from orbitmq.cli.dead_letters.wanted import (
    LIST,
    NOTHING_FOUND,
    Begin,
    Cause,
    Group,
    Key,
    Until,
    letter_row,
    wanted,
)
from orbitmq.cli.message_output import message_row
from orbitmq.cli.output import AsJson, counted, show_json, show_one, show_rows, time_text
from orbitmq.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orbitmq.client.aio.admin import Admin
    from orbitmq.client.core.dead_letters import DeadLetter


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
    asked = wanted(group, begin, until, key, cause)

    async def ask(admin: Admin) -> list[dict[str, object]]:
        found: list[dict[str, object]] = []
        async for letter in asked.find(admin):
            found.append(letter_row(letter))
            if len(found) == count:
                break
        return found

    rows = administer(namesrv, ask)
    show_rows(rows, as_json=as_json, empty=asked.none_found)
    if not rows:
        raise typer.Exit(NOTHING_FOUND)


def show(
    group: Group,
    message_ids: Annotated[list[str], typer.Argument(metavar="ID…")],
    *,
    namesrv: NameServers = None,
    as_json: AsJson = False,
) -> None:
    """Show dead letters in full, by their ids."""
    asked = wanted(group, "", "now", "", "", message_ids)

    async def ask(admin: Admin) -> list[dict[str, object]]:
        return [
            {**letter_row(letter), **message_row(letter.message), "topic": letter.topic}
            async for letter in asked.find(admin)
        ]

    rows = administer(namesrv, ask)
    if as_json:
        show_json(rows)
    for row in rows if not as_json else ():
        show_one(row, as_json=False)
    shown = {str(row[name]) for row in rows for name in ("message_id", "offset_message_id")}
    if missing := [one for one in message_ids if one not in shown]:
        typer.secho(
            f"group {group} has no dead letter {', '.join(missing)} (see all: {LIST} {group})",
            err=True,
        )
        raise typer.Exit(NOTHING_FOUND)


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
    asked = wanted(group, begin, until, key, cause)

    async def run(admin: Admin, file: IO[str]) -> int:
        count = 0
        async for letter in asked.find(admin):
            file.write(json.dumps(_exported(letter), ensure_ascii=False) + "\n")
            count += 1
        return count

    with _opened(output) as file:
        count = administer(namesrv, lambda admin: run(admin, file))
    if not count:
        typer.secho(asked.none_found, dim=True, err=True)
        raise typer.Exit(NOTHING_FOUND)
    typer.secho(f"{counted(count, 'dead letter')} of group {group} exported", dim=True, err=True)


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


@contextmanager
def _opened(output: str) -> Iterator[IO[str]]:
    if output == "-":
        yield sys.stdout
        return
    path = Path(output)
    # It gets its name when it is complete.
    partial = path.with_name(f"{path.name}.part")
    try:
        path.touch(exist_ok=False)
        file = partial.open("w", encoding="utf-8")
    except OSError as error:
        raise SettingsError(
            f"cannot write {output}: {error.strerror}", hint="name a file that does not exist yet"
        ) from error
    try:
        with file:
            yield file
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        path.unlink()
        raise
