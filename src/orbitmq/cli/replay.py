"""`orbitmq replay`: sends stored messages into a topic again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, cast

import typer

from orbitmq.cli.administering import NameServers, Yes, client_keywords
from orbitmq.cli.moments import parse_moment
from orbitmq.cli.output import AsJson
from orbitmq.cli.pace import check_rate
from orbitmq.clock import SystemClock
from orbitmq.errors import SettingsError
from orbitmq.pipelines.suggestions import suggestion

if TYPE_CHECKING:
    from orbitmq.pipelines.replaying.doubts import Choice
    from orbitmq.pipelines.replaying.plan import Guarantee

_GUARANTEES: Final = ("exactly-once", "at-least-once")
_CHOICES: Final = ("send", "skip")


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("replay")(replay)


def replay(  # noqa: PLR0913  # a parameter a flag
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="A topic, dlq:GROUP, or store:DIR.")
    ],
    *,
    into: Annotated[str, typer.Option(metavar="TOPIC", help="The topic to send to.")],
    start: Annotated[
        str, typer.Option("--from", help="Stored since: 2026-01-31T12:30; or 15m, 2h, 3d ago.")
    ] = "",
    end: Annotated[
        str, typer.Option("--to", help="Stored before; a time, like --from. By default now.")
    ] = "",
    where: Annotated[
        str, typer.Option(metavar="SQL", help="Only messages that meet this condition.")
    ] = "",
    transform: Annotated[
        str, typer.Option(metavar="SQL", help="What to send: SELECT … AS body FROM messages.")
    ] = "",
    topic: Annotated[str, typer.Option(help="Which topic of store files.")] = "",
    rate: Annotated[
        float | None, typer.Option(help="At most this many a second, on average.")
    ] = None,
    preview: Annotated[bool, typer.Option("--preview", help="Show what would be sent.")] = False,
    sample: Annotated[int, typer.Option(min=1, max=100, help="Rows that a preview shows.")] = 5,
    create: Annotated[bool, typer.Option("--create", help="Create the topic if missing.")] = False,
    name: Annotated[
        str,
        typer.Option(
            "--id",
            metavar="NAME",
            help="A name for the replay.",
            show_default="the same for the same arguments",
        ),
    ] = "",
    guarantee: Annotated[
        str, typer.Option(help="exactly-once, or at-least-once for brokers of others.")
    ] = "exactly-once",
    in_doubt: Annotated[
        str, typer.Option(help="What to do with a chunk that may have been sent: send, skip.")
    ] = "",
    state: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Where plans are.",
            show_default="~/.local/state/orbitmq/replays",
        ),
    ] = None,
    yes: Yes = False,
    namesrv: NameServers = None,
    into_namesrv: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT;…", help="Name servers of the topic, if others."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Send messages again that are stored, from one topic into another; each once.

    The same command resumes a replay that was interrupted, and sends nothing that was sent.
    """
    # Perf: other commands, and shell completion, do without these.
    from orbitmq.cli.replays.job import Job, spark_options
    from orbitmq.pipelines.replaying.plan import Request, check_id
    from orbitmq.pipelines.replaying.sources import check_target, parse_source, source_text
    from orbitmq.pipelines.replaying.state import default_folder, held, peek

    if rate is not None:
        check_rate(rate)
    if name:
        check_id(name)
    _check_choice("--guarantee", guarantee, _GUARANTEES)
    if in_doubt:
        _check_choice("--in-doubt", in_doubt, _CHOICES)
    check_target(into)
    now_ms = SystemClock().now_ms()
    start_ms = parse_moment(start, now_ms=now_ms) if start else None
    end_ms = parse_moment(end, now_ms=now_ms) if end else None
    if start_ms is not None and start_ms > (now_ms if end_ms is None else end_ms):
        raise SettingsError(
            f"--from {start} is after --to {end or 'now'}", hint="give an earlier --from"
        )
    read_from = client_keywords(namesrv)
    send_to = client_keywords(into_namesrv) if into_namesrv else read_from
    found = parse_source(source, topic, spark_options(read_from))
    request = Request(
        source=source_text(source),
        source_topic=topic,
        into=into,
        start=start,
        end=end,
        where=where,
        transform=transform,
        namesrv="" if source.startswith("store:") else read_from["namesrv"],
        into_namesrv=send_to["namesrv"],
        guarantee=cast("Guarantee", guarantee),
    )
    job = Job(
        source=found,
        request=request,
        name=name or request.id,
        start_ms=start_ms,
        end_ms=end_ms,
        read_from=read_from,
        send_to=send_to,
        rate=rate,
        sample=sample,
        creates=create,
        as_json=as_json,
    )
    root = state or default_folder()
    if preview:
        job.preview(peek(root, job.name))
        return
    with held(root, job.name) as stored:
        job.run(stored, cast("Choice", in_doubt), yes=yes)


def _check_choice(flag: str, given: str, choices: tuple[str, ...]) -> None:
    if given not in choices:
        raise SettingsError(f"{flag} cannot be {given!r}", hint=suggestion(given, choices))
