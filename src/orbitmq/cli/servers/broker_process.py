"""`orbitmq broker` without a subcommand: runs one broker in this process."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from orbitmq.broker.app import Broker, load_settings
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


def run_broker(  # noqa: PLR0913  # a parameter a flag
    context: typer.Context,
    *,
    config: Annotated[
        Path | None,
        typer.Option("-c", "--config", help="Properties file, as RocketMQ's broker.conf."),
    ] = None,
    name_servers: Annotated[
        str | None,
        typer.Option("-n", "--namesrv", help="Name servers, as host:port;host:port."),
    ] = None,
    print_options: PrintOptions = False,
    host: Host = None,
    port: Annotated[
        int | None,
        typer.Option(help="Port to listen on; 0 finds a free one.", show_default="10911"),
    ] = None,
    store: Annotated[
        Path | None, typer.Option(help="Folder of the store.", show_default="~/store")
    ] = None,
    options: OtherOptions = None,
    log_level: LogLevelFlag = LogLevel.INFO,
    until_input_ends: Annotated[
        bool, typer.Option("--until-input-ends", hidden=True, help="End with who started it.")
    ] = False,
) -> None:
    """Run a broker until it is told to stop by SIGTERM, SIGINT or SIGHUP."""
    if context.invoked_subcommand is not None:
        return
    flags = flags_of(
        options,
        bindAddress=host,
        listenPort=port,
        namesrvAddr=name_servers,
        storePathRootDir=store,
    )
    settings = load_settings(file=config, environment=os.environ, flags=flags)
    if print_options:
        print_settings(settings)
        return
    run(
        settings,
        lambda: Broker(settings, config_file=config),
        log_level,
        until_input_ends=until_input_ends,
    )
