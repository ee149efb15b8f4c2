"""`orbitmq namesrv`: run a name server, or administer running ones."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from orbitmq.cli.administering import NameServers, Yes, administer, confirm, some_options
from orbitmq.cli.output import AsJson, show_each, show_rows
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


def add_to(app: typer.Typer) -> None:
    """Add the command and its subcommands."""
    group = typer.Typer(
        help="Run a name server, or administer running ones.", invoke_without_command=True
    )
    app.add_typer(group, name="namesrv")
    group.callback()(run_name_server)
    group.command("config")(config)
    group.command("set")(set_options)
    group.command("epochs")(epochs)
    group.command("forget-epoch")(forget_epoch)


def run_name_server(
    context: typer.Context,
    *,
    config: Annotated[
        Path | None,
        typer.Option("-c", "--config", help="Properties file, like RocketMQ's namesrv.conf."),
    ] = None,
    print_options: PrintOptions = False,
    host: Host = None,
    port: Annotated[
        int | None, typer.Option(help="Port to listen on.", show_default="9876")
    ] = None,
    options: OtherOptions = None,
    log_level: LogLevelFlag = LogLevel.INFO,
) -> None:
    """Run a name server until SIGTERM, SIGINT or SIGHUP."""
    if context.invoked_subcommand is not None:
        return
    flags = flags_of(options, bindAddress=host, listenPort=port)
    settings = load_settings(file=config, environment=os.environ, flags=flags)
    if print_options:
        print_settings(settings)
        return
    run(settings, lambda _: NameServer(settings, config_file=config), log_level)


def config(
    names: Annotated[list[str] | None, typer.Argument(metavar="[OPTION]…")] = None,
    *,
    namesrv: NameServers = None,
    as_json: AsJson = False,
) -> None:
    """Show all options of the name servers, or the named ones."""
    found = administer(namesrv, lambda admin: admin.name_servers.options())
    show_each(
        {address: some_options(options, names) for address, options in found.items()},
        as_json=as_json,
    )


def set_options(
    options: Annotated[list[str], typer.Argument(metavar="NAME=VALUE…")],
    *,
    yes: Yes = False,
    namesrv: NameServers = None,
) -> None:
    """Change options of all name servers listed in --namesrv."""
    wanted = flags_of(options)
    listed = ", ".join(f"{name}={value}" for name, value in wanted.items())
    confirm(f"set {listed} on the name servers?", yes=yes)
    administer(namesrv, lambda admin: admin.name_servers.set_options(wanted))
    typer.echo(f"the name servers run with {listed}")


def epochs(*, namesrv: NameServers = None, as_json: AsJson = False) -> None:
    """List the epochs above 0 that the name servers know, one for each broker group."""
    found = administer(namesrv, lambda admin: admin.name_servers.epochs())
    show_rows(
        [
            {"name_server": address, "cluster": cluster, "broker": name, "epoch": epoch}
            for address, by_cluster in found.items()
            for cluster, by_name in by_cluster.items()
            for name, epoch in by_name.items()
        ],
        as_json=as_json,
        empty="no broker group has an epoch above 0",
    )


def forget_epoch(
    broker: Annotated[str, typer.Argument(metavar="BROKER")],
    *,
    yes: Yes = False,
    namesrv: NameServers = None,
) -> None:
    """Forget the epoch of a broker group whose promoted master is lost for good."""
    confirm(
        f"forget the epoch of {broker}? A master that was replaced can then register again, without "
        "what was sent after the promotion",
        yes=yes,
    )
    epoch = administer(namesrv, lambda admin: admin.name_servers.forget_epoch(broker))
    typer.echo(
        f"epoch {epoch} of {broker} is forgotten; a master with it that is alive brings it back"
    )
