"""`orbitmq namesrv` without a subcommand: runs one name server in this process."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

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
from orbitmq.nameserver.app import NameServer, load_settings


def run_name_server(
    context: typer.Context,
    *,
    config: Annotated[
        Path | None,
        typer.Option("-c", "--config", help="Properties file, as RocketMQ's namesrv.conf."),
    ] = None,
    print_options: PrintOptions = False,
    host: Host = None,
    port: Annotated[
        int | None, typer.Option(help="Port to listen on.", show_default="9876")
    ] = None,
    options: OtherOptions = None,
    log_level: LogLevelFlag = LogLevel.INFO,
) -> None:
    """Run a name server until it is told to stop by SIGTERM, SIGINT or SIGHUP."""
    if context.invoked_subcommand is not None:
        return
    flags = flags_of(options, bindAddress=host, listenPort=port)
    settings = load_settings(file=config, environment=os.environ, flags=flags)
    if print_options:
        print_settings(settings)
        return
    run(settings, lambda: NameServer(settings, config_file=config), log_level)
