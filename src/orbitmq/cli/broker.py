"""`orbitmq broker`: run a broker, or administer running ones."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from orbitmq.broker.app import load_settings
from orbitmq.broker.replicated import ReplicatedBroker
from orbitmq.cli.administering import NameServers, Yes, administer, confirm, some_options
from orbitmq.cli.broker_drain import drain
from orbitmq.cli.broker_promote import promote
from orbitmq.cli.broker_seed import seed
from orbitmq.cli.cluster import list_brokers
from orbitmq.cli.output import AsJson, seconds, show_each, show_rows, time_text
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
from orbitmq.client.aio.admin import Admin
from orbitmq.client.aio.admin.groups import lag_of
from orbitmq.errors import SettingsError
from orbitmq.model.versions import version_name
from orbitmq.protocol.requests.statistics import Replication

BrokerArgument = Annotated[str, typer.Argument(metavar="BROKER", help="Its name, or its address.")]
BrokersArgument = Annotated[
    str, typer.Argument(metavar="BROKER", help="Its name or address, or a cluster for all in it.")
]


def add_to(app: typer.Typer) -> None:
    """Add the command and its subcommands."""
    group = typer.Typer(
        help="Run a broker, or administer running ones.", invoke_without_command=True
    )
    app.add_typer(group, name="broker")
    group.callback()(run_broker)
    group.command("list")(list_brokers)
    group.command("status")(status)
    group.command("config")(config)
    group.command("set")(set_options)
    group.command("topics")(topics)
    group.command("producers")(producers)
    group.command("slaves")(slaves)
    group.command("lag")(lag)
    group.command("clean")(clean)
    group.command("drain")(drain)
    group.command("seed")(seed)
    group.command("promote")(promote)
    group.command("forbid-writing")(forbid_writing)
    group.command("allow-writing")(allow_writing)


def run_broker(  # noqa: PLR0913  # a parameter a flag
    context: typer.Context,
    *,
    config: Annotated[
        Path | None,
        typer.Option("-c", "--config", help="Properties file, like RocketMQ's broker.conf."),
    ] = None,
    name_servers: Annotated[
        str | None,
        typer.Option("-n", "--namesrv", help="Name servers: host:port;host:port."),
    ] = None,
    print_options: PrintOptions = False,
    host: Host = None,
    port: Annotated[
        int | None,
        typer.Option(help="Port to listen on; 0 finds a free one.", show_default="10911"),
    ] = None,
    store: Annotated[
        Path | None, typer.Option(help="Store directory.", show_default="~/store")
    ] = None,
    options: OtherOptions = None,
    log_level: LogLevelFlag = LogLevel.INFO,
    until_input_ends: Annotated[
        bool, typer.Option("--until-input-ends", hidden=True, help="Stop when stdin closes.")
    ] = False,
) -> None:
    """Run a broker until SIGTERM, SIGINT or SIGHUP."""
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
        lambda fail: ReplicatedBroker(settings, config_file=config, on_failure=fail),
        log_level,
        until_input_ends=until_input_ends,
    )


def status(
    broker: BrokersArgument, *, namesrv: NameServers = None, as_json: AsJson = False
) -> None:
    """Show the state of a broker, or of all brokers in a cluster."""

    async def ask(admin: Admin) -> dict[str, dict[str, str]]:
        return {one: await admin.brokers.runtime(one) for one in await targets(admin, broker)}

    show_each(administer(namesrv, ask), as_json=as_json)


def config(
    broker: BrokersArgument,
    names: Annotated[list[str] | None, typer.Argument(metavar="[OPTION]…")] = None,
    *,
    namesrv: NameServers = None,
    as_json: AsJson = False,
) -> None:
    """Show all options of a broker, or the named ones."""

    async def ask(admin: Admin) -> dict[str, dict[str, str]]:
        return {
            one: some_options(await admin.brokers.options(one), names)
            for one in await targets(admin, broker)
        }

    show_each(administer(namesrv, ask), as_json=as_json)


def set_options(
    broker: BrokersArgument,
    options: Annotated[list[str], typer.Argument(metavar="NAME=VALUE…")],
    *,
    yes: Yes = False,
    namesrv: NameServers = None,
) -> None:
    """Change options of a running broker."""
    wanted = flags_of(options)
    listed = ", ".join(f"{name}={value}" for name, value in wanted.items())
    confirm(f"set {listed} on {broker}?", yes=yes)

    async def ask(admin: Admin) -> list[str]:
        changed = await targets(admin, broker)
        for one in changed:
            await admin.brokers.set_options(one, wanted)
        return changed

    for one in administer(namesrv, ask):
        typer.echo(f"{one} runs with {listed}")


async def targets(admin: Admin, named: str) -> list[str]:
    """The named broker; for a cluster, all its masters."""
    view = await admin.brokers.clusters()
    if named in view.brokers or named not in view.clusters:
        return [named]
    return list(await admin.brokers.addresses(cluster=named))


def topics(broker: BrokerArgument, *, namesrv: NameServers = None, as_json: AsJson = False) -> None:
    """List the topics of a broker."""
    found = administer(namesrv, lambda admin: admin.topics.configs(broker))
    rows = [
        {"topic": name, "read_queues": one.read_queues, "write_queues": one.write_queues}
        for name, one in sorted(found.items())
    ]
    show_rows(rows, as_json=as_json)


def producers(
    broker: BrokerArgument, *, namesrv: NameServers = None, as_json: AsJson = False
) -> None:
    """List the producers connected to a broker."""
    found = administer(namesrv, lambda admin: admin.brokers.producers(broker))
    rows = [
        {
            "group": group,
            "client_id": one.client_id,
            "address": one.address.removeprefix("/"),
            "language": one.language,
            "version": version_name(one.version),
            "last_heard": time_text(one.last_heard_ms),
        }
        for group, clients in found.items()
        for one in clients
    ]
    show_rows(rows, as_json=as_json, empty="no producer is connected")


def slaves(
    broker: BrokersArgument, *, namesrv: NameServers = None, as_json: AsJson = False
) -> None:
    """List the slaves of a broker, or of all brokers in a cluster."""

    async def ask(admin: Admin) -> dict[str, Replication]:
        return {one: await admin.brokers.replication(one) for one in await targets(admin, broker)}

    found = administer(namesrv, ask)
    if broker in found and not found[broker].is_master:
        master = found[broker].master_link.address
        where = f", which copies the log at {master}" if master else ""
        raise SettingsError(
            f"{broker} is a slave itself{where}", hint="name its master, or its group"
        )
    rows = [
        {
            "broker": name,
            # Compat: slaves of RocketMQ do not say who they are; theirs is that of a connection.
            "id": one.broker_id,
            "address": one.broker_address or one.address,
            "log_end": state.log_end,
            "confirmed": one.confirmed_offset,
            "lag_bytes": one.lag_bytes,
            "lag_seconds": seconds(one.lag_ms),
            "in_sync": one.in_sync,
        }
        for name, state in found.items()
        for one in state.slaves
    ]
    show_rows(rows, as_json=as_json, empty="no slaves are connected")


def lag(
    broker: BrokerArgument,
    *,
    level: Annotated[int, typer.Option(min=0, help="Only queues with at least this lag.")] = 0,
    namesrv: NameServers = None,
    as_json: AsJson = False,
) -> None:
    """Show the lag of every group on a broker, queue by queue."""
    found = administer(namesrv, lambda admin: admin.brokers.progress(broker))
    lags = [
        (queue, group, one)
        for groups in found.groups
        for group, topics in groups.items()
        for stats in topics
        for queue, one in stats.queues.items()
        if lag_of(one) >= level
    ]
    lags.sort(key=lambda each: (each[0].topic, each[1], each[0]))
    rows = [
        {
            "topic": queue.topic,
            "group": group,
            "broker": queue.broker_name,
            "queue": queue.queue_id,
            "end": one.broker_offset,
            "consumed": one.consumer_offset,
            "lag": lag_of(one),
            "last_consumed_stored": time_text(one.last_timestamp_ms),
        }
        for queue, group, one in lags
    ]
    show_rows(rows, as_json=as_json, empty="no queue with such a lag")


class Leftover(StrEnum):
    """What a broker can clean up."""

    LOGS = "logs"
    QUEUES = "queues"
    TOPICS = "topics"


def clean(
    broker: BrokersArgument,
    *,
    only: Annotated[Leftover | None, typer.Option(help="Delete only this kind.")] = None,
    namesrv: NameServers = None,
    yes: Yes = False,
) -> None:
    """Delete expired log files and queue files, and queues of deleted topics, now."""
    confirm(f"delete expired {only or 'files'} of {broker} now?", yes=yes)

    async def ask(admin: Admin) -> list[str]:
        cleaned = await targets(admin, broker)
        for one in cleaned:
            if only in {None, Leftover.LOGS}:
                await admin.brokers.delete_expired_logs(one)
            if only in {None, Leftover.QUEUES}:
                await admin.brokers.clean_expired_queues(one)
            if only in {None, Leftover.TOPICS}:
                await admin.brokers.clean_unused_topics(one)
        return cleaned

    for one in administer(namesrv, ask):
        typer.echo(f"{one} has cleaned up")


def forbid_writing(
    broker: BrokerArgument, *, yes: Yes = False, namesrv: NameServers = None
) -> None:
    """Stop routing sends to a broker, before it is taken out of service."""
    confirm(f"stop routing sends to {broker}?", yes=yes)
    count = administer(namesrv, lambda admin: admin.brokers.forbid_writing(broker))
    typer.echo(f"{count} topics of {broker} are read-only")


def allow_writing(broker: BrokerArgument, *, namesrv: NameServers = None) -> None:
    """Route sends to a broker again."""
    count = administer(namesrv, lambda admin: admin.brokers.allow_writing(broker))
    typer.echo(f"{count} topics of {broker} are writable")
