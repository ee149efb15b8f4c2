"""`orbitmq lake`: archives of topics, and what brokers keep for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from orbitmq.cli.administering import NameServers, Yes, administer, confirm
from orbitmq.cli.output import AsJson, counted, escaped, show_rows, time_text
from orbitmq.errors import CommandError

if TYPE_CHECKING:
    from orbitmq.client.aio.admin.archives import BrokerArchives
    from orbitmq.model.archives import Archive, ArchiveFigures


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(
        help="See and release archives that retention waits for.", no_args_is_help=True
    )
    group.command("gates")(gates)
    group.command("release")(release)
    app.add_typer(group, name="lake")


def gates(*, namesrv: NameServers = None, as_json: AsJson = False) -> None:
    """List archives at each broker: how far they are, and what is kept for them."""
    found = administer(namesrv, lambda admin: admin.archives.all())
    rows = [
        _row(broker, archive, at.figures[name])
        for broker, at in sorted(found.items())
        for name, archive in sorted(at.archives.items())
        if name in at.figures
    ]
    show_rows(rows, as_json=as_json, empty="no broker knows an archive")
    for broker, at in sorted(found.items()):
        if at.unknown:
            typer.secho(
                f"warning: {escaped(unknown_text(at, broker))}", fg=typer.colors.YELLOW, err=True
            )


def release(
    name: Annotated[
        str, typer.Argument(metavar="[NAME]", help="The archive.", show_default=False)
    ] = "",
    *,
    broker: Annotated[
        str | None, typer.Option("-b", "--broker", help="At this broker only.")
    ] = None,
    unknown: Annotated[
        bool,
        typer.Option(
            "--unknown", help="Release archives that the broker may have lost, instead of one."
        ),
    ] = False,
    yes: Yes = False,
    namesrv: NameServers = None,
) -> None:
    """Forget an archive: retention deletes what it lacks as if there were none."""
    if unknown:
        if broker is None or name:
            raise CommandError("--unknown needs --broker, and no NAME", hint="see: lake gates")
        confirm(
            f"let broker {broker} delete messages that an archive it lost may still need? "
            "First open all archives again that are missing in: orbitmq lake gates",
            yes=yes,
        )
        administer(namesrv, lambda admin: admin.archives.release_unknown(broker))
        typer.echo(f"broker {broker} waits only for the archives that it knows")
        return
    if not name:
        raise CommandError("which archive?", hint="orbitmq lake gates shows all")
    found = administer(namesrv, lambda admin: admin.archives.all())
    waiting = sum(
        at.figures[name].unarchived_messages
        for at_broker, at in found.items()
        if name in at.figures and broker in {None, at_broker}
    )
    confirm(
        f"release archive {name}? {counted(waiting, 'message')} that it lacks may be deleted, and "
        "its next run begins anew.",
        yes=yes,
    )
    brokers = administer(namesrv, lambda admin: admin.archives.release(name, broker=broker))
    typer.echo(f"archive {name} is released at {', '.join(brokers)}")


def unknown_text(at: BrokerArchives, broker: str) -> str:
    """Why a broker keeps everything, and what to do."""
    return (
        f"broker {broker} keeps every log file, as it may have lost archives: {at.unknown}. Open "
        f"them again, then: orbitmq lake release --unknown --broker {broker}"
    )


def _row(broker: str, archive: Archive, figures: ArchiveFigures) -> dict[str, object]:
    return {
        "archive": archive.name,
        "broker": broker,
        "topic": archive.topic,
        "gates": archive.gates,
        "unarchived": figures.unarchived_messages,
        "oldest": time_text(figures.oldest_ms),
        "held_log_bytes": figures.held_log_bytes,
        "held_files": figures.held_files,
        "missed": figures.missed_messages,
        "advanced": time_text(archive.advanced_ms),
        "target": archive.target,
    }
