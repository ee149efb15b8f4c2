"""`orbitmq namesrv`: administer running name servers, or run one."""

from __future__ import annotations

from typing import Annotated

import typer

from orbitmq.cli.administering import NameServers, Yes, administer, confirm
from orbitmq.cli.broker import show_each, some_options
from orbitmq.cli.output import AsJson
from orbitmq.cli.servers.name_server_process import run_name_server
from orbitmq.cli.servers.serving import flags_of


def add_to(app: typer.Typer) -> None:
    """Add the command, and below it those that administer name servers."""
    group = typer.Typer(
        help="Run a name server, or administer those that run.", invoke_without_command=True
    )
    app.add_typer(group, name="namesrv")
    group.callback()(run_name_server)
    group.command("config")(config)
    group.command("set")(set_options)


def config(
    names: Annotated[list[str] | None, typer.Argument(metavar="[OPTION]…")] = None,
    *,
    namesrv: NameServers = None,
    as_json: AsJson = False,
) -> None:
    """Show the options of the name servers, or some of them."""
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
    """Change options of all name servers that --namesrv lists."""
    wanted = flags_of(options)
    listed = ", ".join(f"{name}={value}" for name, value in wanted.items())
    confirm(f"set {listed} on the name servers?", yes=yes)
    administer(namesrv, lambda admin: admin.name_servers.set_options(wanted))
    typer.echo(f"the name servers run with {listed}")
