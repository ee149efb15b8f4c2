"""`orbitmq filterserver`: run a filter server, or list installed filters."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from orbitmq.cli.output import AsJson, show_rows
from orbitmq.cli.servers.logs import LogLevel
from orbitmq.cli.servers.serving import (
    Host,
    LogLevelFlag,
    OtherOptions,
    PrintOptions,
    flags_of,
    print_settings,
    run,
)
from orbitmq.filterserver.app import FilterServer, load_settings
from orbitmq.filterserver.plugins import installed_filters


def add_to(app: typer.Typer) -> None:
    """Add the command and its subcommands."""
    group = typer.Typer(
        help="Run a filter server, or list the filters installed here.",
        invoke_without_command=True,
    )
    app.add_typer(group, name="filterserver")
    group.callback()(run_filter_server)
    group.command("filters")(filters)


def run_filter_server(
    context: typer.Context,
    *,
    config: Annotated[
        Path | None, typer.Option("-c", "--config", help="Properties file with options.")
    ] = None,
    print_options: PrintOptions = False,
    broker: Annotated[
        str | None,
        typer.Option(
            help="Address of the broker whose messages it filters.",
            metavar="HOST:PORT",
            show_default="127.0.0.1:10911",
        ),
    ] = None,
    host: Host = None,
    port: Annotated[
        int | None, typer.Option(help="Port to listen on.", show_default="a free one")
    ] = None,
    options: OtherOptions = None,
    log_level: LogLevelFlag = LogLevel.INFO,
) -> None:
    """Run a filter server until SIGTERM, SIGINT or SIGHUP.

    It serves the consumers of one broker with filter functions from installed packages; see
    docs/clients/filter-servers.md.
    """
    if context.invoked_subcommand is not None:
        return
    flags = flags_of(options, connectWhichBroker=broker, bindAddress=host, listenPort=port)
    settings = load_settings(file=config, environment=os.environ, flags=flags)
    if print_options:
        print_settings(settings)
        return
    run(settings, lambda _: FilterServer(settings), log_level)


def filters(*, as_json: AsJson = False) -> None:
    """List the filters that packages installed here offer; none of them is loaded."""
    rows = [
        {
            "class": name,
            "function": offered.value,
            "package": offered.dist.name if offered.dist is not None else None,
        }
        for name, offered in sorted(installed_filters().items())
    ]
    show_rows(rows, as_json=as_json, empty="no package here offers a filter")
