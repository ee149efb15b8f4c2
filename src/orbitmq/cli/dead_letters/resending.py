"""`orbitmq dlq resend`: send copies of dead letters, slowly, once, and resumable."""

from __future__ import annotations

import dataclasses
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from orbitmq.cli.administering import (
    NameServers,
    Yes,
    administer,
    client_keywords,
    confirm,
    require_target,
)
from orbitmq.cli.dead_letters.resend_progress import ResendProgress
from orbitmq.cli.dead_letters.wanted import (
    NOTHING_FOUND,
    Begin,
    Cause,
    Group,
    Key,
    Until,
    Wanted,
    letter_row,
    wanted,
)
from orbitmq.cli.message_output import print_sent
from orbitmq.cli.output import AsJson, counted, show_rows
from orbitmq.cli.pace import RATE, Pace, Rate, check_rate
from orbitmq.client.aio import Producer
from orbitmq.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orbitmq.client.aio.admin import Admin
    from orbitmq.client.core.dead_letters import DeadLetter

_PREVIEWED_MAX: Final = 10


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
    rate: Rate = RATE,
    preview: Annotated[bool, typer.Option("--preview", help="Show what would be sent.")] = False,
    progress: Annotated[
        str,
        typer.Option(
            metavar="FILE",
            help="Note what was sent; with the same file, a later run sends only the rest.",
        ),
    ] = "",
    yes: Yes = False,
    namesrv: NameServers = None,
    as_json: AsJson = False,
) -> None:
    """Send copies of dead letters; they stay where they are, so a second run sends them again."""
    check_rate(rate)
    # The end is fixed: what fails again meanwhile is not sent again.
    asked = wanted(group, begin, until, key, cause, message_ids or ())
    with ResendProgress.open(Path(progress)) if progress else ResendProgress() as noted:
        asked = _resumed(asked, to, noted, progress)
        count, rows = administer(namesrv, lambda admin: _look(admin, asked, to, noted))
        if not count:
            all_sent = f"nothing is left to send; {noted.sent} were sent before"
            typer.secho(all_sent if noted.sent else asked.none_found, dim=True, err=True)
            # What an earlier run finished is done, as the caller wants it.
            raise typer.Exit(0 if noted.sent else NOTHING_FOUND)
        if preview or not (yes or as_json):
            show_rows(rows, as_json=as_json)
            if count > len(rows):
                typer.secho(f"… and {count - len(rows)} more", dim=True, err=True)
        if noted.unsure:
            typer.secho(
                f"a copy of {noted.unsure} may have been sent already; it is sent again", err=True
            )
        if preview:
            return
        before = f" ({noted.sent} were sent before)" if noted.sent else ""
        confirm(
            f"send copies of {counted(count, 'dead letter')}{before}, {rate:g} a second at most?",
            yes=yes,
        )
        if not noted.plan:
            noted.start(_plan(asked, to))
        with _reporting(noted):
            administer(
                namesrv,
                lambda admin: _send(
                    admin, asked, to, noted, rate=rate, namesrv=namesrv, as_json=as_json
                ),
            )


async def _look(
    admin: Admin, asked: Wanted, to: str, noted: ResendProgress
) -> tuple[int, list[dict[str, object]]]:
    """Count what is to be sent, and return rows about the first of it."""
    count, rows = 0, list[dict[str, object]]()
    async for letter in asked.find(admin):
        if noted.has(letter.message):
            continue
        count += 1
        if count <= _PREVIEWED_MAX:
            rows.append({**letter_row(letter), "to": to or letter.topic})
    if count and to:
        await require_target(admin, to)
    return count, rows


async def _send(
    admin: Admin,
    asked: Wanted,
    to: str,
    noted: ResendProgress,
    *,
    rate: float,
    namesrv: str | None,
    as_json: bool,
) -> None:
    pace = Pace(rate)
    async with Producer("orbitmq-cli", **client_keywords(namesrv)) as producer:
        async for letter in asked.find(admin):
            message = letter.message
            if noted.has(message):
                continue
            copy = message.as_message(_topic_of(letter, to))
            await pace.keep()
            noted.begin(message)
            result = await producer.send(copy)
            noted.end(result.message_id)
            print_sent(result, as_json=as_json, copy_of=message.message_id)


def _resumed(asked: Wanted, to: str, noted: ResendProgress, path: str) -> Wanted:
    """What an earlier run was to send, times included; raises if this is another task."""
    if not noted.plan:
        return asked
    now, before = _plan(asked, to), noted.plan
    differing = [
        name for name in ("group", "to", "key", "cause", "ids") if now[name] != before[name]
    ]
    if differing:
        name = differing[0]
        raise SettingsError(
            f"{path} is about another resend: {name} was {before[name]!r}, now {now[name]!r}",
            hint="give the same flags as at first, or another file",
        )
    return dataclasses.replace(asked, begin_ms=before["begin_ms"], end_ms=before["end_ms"])


def _plan(asked: Wanted, to: str) -> dict[str, Any]:
    return {**dataclasses.asdict(asked), "ids": sorted(asked.ids), "to": to}


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
def _reporting(noted: ResendProgress) -> Iterator[None]:
    """Say what was sent and what not when the command ends early, also by Ctrl-C."""
    try:
        yield
    except BaseException:
        text = f"stopped: {noted.sent} copies were sent"
        text += f", the last one of {noted.last}" if noted.last else ""
        text += f"; a copy of {noted.unsure} may have been sent" if noted.unsure else ""
        if noted.is_kept:
            text += "; the same command sends the rest"
        elif noted.sent or noted.unsure:
            text += "; the same command sends them again (next time, give --progress FILE)"
        typer.secho(text, err=True)
        raise
