"""`orbitmq broker list | status | config | …`: administer brokers that run."""

from __future__ import annotations

from typing import Annotated

import typer

from orbitmq.cli.administering import NameServers, Yes, administer, confirm
from orbitmq.cli.cluster import list_brokers
from orbitmq.cli.output import AsJson, show_one, show_rows
from orbitmq.cli.serving import flags_of
from orbitmq.client.aio.admin import Admin

Broker = Annotated[str, typer.Argument(metavar="BROKER", help="Its name, or its address.")]


def add_to(group: typer.Typer) -> None:
    """Add the commands below `orbitmq broker`."""
    group.command("list")(list_brokers)
    group.command("status")(status)
    group.command("config")(config)
    group.command("set")(set_options)
    group.command("topics")(topics)
    group.command("clean")(clean)
    group.command("forbid-writing")(forbid_writing)
    group.command("allow-writing")(allow_writing)


def status(broker: Broker, *, namesrv: NameServers = None, as_json: AsJson = False) -> None:
    """Show the state of a broker."""
    show_one(
        dict(sorted(administer(namesrv, lambda admin: admin.brokers.runtime(broker)).items())),
        as_json=as_json,
    )


def config(
    broker: Broker,
    names: Annotated[list[str] | None, typer.Argument(metavar="[OPTION]…")] = None,
    *,
    namesrv: NameServers = None,
    as_json: AsJson = False,
) -> None:
    """Show the options of a broker, or some of them."""
    found = administer(namesrv, lambda admin: admin.brokers.options(broker))
    shown = {name: found.get(name) for name in names} if names else dict(sorted(found.items()))
    show_one(shown, as_json=as_json)


def set_options(
    broker: Broker,
    options: Annotated[list[str], typer.Argument(metavar="NAME=VALUE…")],
    *,
    yes: Yes = False,
    namesrv: NameServers = None,
) -> None:
    """Change options of a running broker."""
    wanted = flags_of(options)
    listed = ", ".join(f"{name}={value}" for name, value in wanted.items())
    confirm(f"set {listed} on {broker}?", yes=yes)
    administer(namesrv, lambda admin: admin.brokers.set_options(broker, wanted))
    typer.echo(f"{broker} runs with {listed}")


def topics(broker: Broker, *, namesrv: NameServers = None, as_json: AsJson = False) -> None:
    """List the topics that a broker holds."""
    found = administer(namesrv, lambda admin: admin.topics.configs(broker))
    rows = [
        {"topic": name, "read_queues": one.read_queues, "write_queues": one.write_queues}
        for name, one in sorted(found.items())
    ]
    show_rows(rows, as_json=as_json)


def clean(broker: Broker, *, namesrv: NameServers = None, yes: Yes = False) -> None:
    """Delete now what has expired: log files, files of queues, queues of deleted topics."""
    confirm(f"delete expired files of {broker} now?", yes=yes)

    async def ask(admin: Admin) -> None:
        await admin.brokers.delete_expired_logs(broker)
        await admin.brokers.clean_expired_queues(broker)
        await admin.brokers.clean_unused_topics(broker)

    administer(namesrv, ask)
    typer.echo(f"{broker} has cleaned up")


def forbid_writing(broker: Broker, *, yes: Yes = False, namesrv: NameServers = None) -> None:
    """Have clients send nothing more to a broker, before it is taken out of service."""
    confirm(f"have no client send to {broker} any more?", yes=yes)
    count = administer(namesrv, lambda admin: admin.brokers.forbid_writing(broker))
    typer.echo(f"{count} topics of {broker} are read-only")


def allow_writing(broker: Broker, *, namesrv: NameServers = None) -> None:
    """Have clients send to a broker again."""
    count = administer(namesrv, lambda admin: admin.brokers.allow_writing(broker))
    typer.echo(f"{count} topics of {broker} can be sent to")
