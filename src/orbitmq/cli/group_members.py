"""`orbitmq group members | running | …`: a group's members, what they may read."""

from __future__ import annotations

from typing import Annotated

import typer

from orbitmq.cli.administering import NameServers, Yes, administer, confirm, group_config
from orbitmq.cli.completion import Group, Topic
from orbitmq.cli.output import AsJson, Row, show_json, show_one, show_rows, time_text
from orbitmq.client.aio.admin import Admin
from orbitmq.model.versions import version_name
from orbitmq.protocol.requests.relays import RunningConsumer


def add_to(group: typer.Typer) -> None:
    """Add the commands below `orbitmq group`."""
    group.command("members")(members)
    group.command("running")(running)
    group.command("producers")(producers)
    group.command("forbid")(forbid)
    group.command("allow")(allow)
    group.command("mode")(mode)


def members(group: Group, *, namesrv: NameServers = None, as_json: AsJson = False) -> None:
    """List the consumers of a group and their subscriptions."""

    async def ask(admin: Admin) -> list[Row]:
        await group_config(admin, group)
        found = await admin.groups.connections(group)
        subscriptions = " ".join(
            f"{one.topic}:{one.expression}" for one in found.subscriptions.values()
        )
        return [
            {
                "client_id": client.client_id,
                "address": client.address,
                "language": client.language,
                "version": version_name(client.version),
                "subscriptions": subscriptions,
            }
            for client in found.connections
        ]

    show_rows(administer(namesrv, ask), as_json=as_json, empty="the group has no members now")


def producers(
    group: Group, topic: Topic, *, namesrv: NameServers = None, as_json: AsJson = False
) -> None:
    """List the producers of a group that send to a topic."""
    found = administer(namesrv, lambda admin: admin.groups.producers(group, topic), topic=topic)
    rows = [
        {
            "client_id": client.client_id,
            "address": client.address,
            "language": client.language,
            "version": version_name(client.version),
        }
        for client in found.connections
    ]
    show_rows(
        rows,
        as_json=as_json,
        empty=f"no producer of {group} is connected; orbitmq broker producers shows all groups",
    )


def running(
    group: Group,
    client_id: Annotated[str | None, typer.Argument(metavar="[CLIENT-ID]")] = None,
    *,
    stacks: Annotated[bool, typer.Option(help="Show the stacks of its threads.")] = False,
    namesrv: NameServers = None,
    as_json: AsJson = False,
) -> None:
    """Show what a consumer is doing, or all consumers of the group."""

    async def ask(admin: Admin) -> dict[str, RunningConsumer]:
        await group_config(admin, group)
        connected = (await admin.groups.connections(group)).connections
        names = [client_id] if client_id else sorted(one.client_id for one in connected)
        return {name: await admin.groups.running(group, name, with_stacks=stacks) for name in names}

    found = administer(namesrv, ask)
    if as_json:
        shown = [_running_row(name, one) for name, one in found.items()]
        show_json(shown[0] if client_id else shown)
        return
    if not found:
        typer.secho("the group has no members now", dim=True)
    for name, one in found.items():
        typer.secho(name, bold=True)
        show_one(one.properties, as_json=False)
        show_rows(_queue_rows(one), as_json=False, empty="it has no queues")
        show_rows(_speed_rows(one), as_json=False, empty="it has not consumed anything yet")
        if one.stacks:
            typer.echo(one.stacks)


def _running_row(client_id: str, running: RunningConsumer) -> Row:
    return {
        "client_id": client_id,
        "properties": running.properties,
        "queues": _queue_rows(running),
        "speeds": _speed_rows(running),
        "stacks": running.stacks,
    }


def _queue_rows(running: RunningConsumer) -> list[Row]:
    return [
        {
            "topic": queue.topic,
            "broker": queue.broker_name,
            "queue": queue.queue_id,
            "committed": one.commit_offset,
            "held": one.cached_messages,
            "locked": one.locked,
            "last_pull": time_text(one.last_pull_ms),
            "last_consumed": time_text(one.last_consume_ms),
        }
        for queue, one in running.queues.items()
    ]


def _speed_rows(running: RunningConsumer) -> list[Row]:
    return [
        {
            "topic": topic,
            "pulled_per_second": one.pulled_per_second,
            "pull_ms": one.pull_ms,
            "consumed_per_second": one.consumed_per_second,
            "consume_ms": one.consume_ms,
            "failed_per_second": one.failed_per_second,
            "failed_last_hour": one.failed_messages,
        }
        for topic, one in sorted(running.speeds.items())
    ]


def forbid(group: Group, topic: Topic, *, yes: Yes = False, namesrv: NameServers = None) -> None:
    """Stop a group from reading a topic, until it is allowed again."""
    administer(namesrv, lambda admin: group_config(admin, group))
    confirm(f"stop {group} from reading {topic}?", yes=yes)
    brokers = administer(
        namesrv, lambda admin: admin.groups.forbid_reading(group, topic), topic=topic
    )
    typer.echo(f"{group} may not read {topic} on {', '.join(brokers)}")


def allow(group: Group, topic: Topic, *, namesrv: NameServers = None) -> None:
    """Allow a group to read a topic again."""

    async def ask(admin: Admin) -> list[str]:
        await group_config(admin, group)
        return await admin.groups.allow_reading(group, topic)

    brokers = administer(namesrv, ask, topic=topic)
    typer.echo(f"{group} may read {topic} on {', '.join(brokers)}")


def mode(
    group: Group,
    topic: Topic,
    wanted: Annotated[str, typer.Argument(metavar="pull|pop")],
    *,
    share: Annotated[
        int, typer.Option(min=-1, help="With pop: how many members may share a queue.")
    ] = 0,
    namesrv: NameServers = None,
) -> None:
    """Set whether a group pulls or pops a topic; only brokers of RocketMQ 5 support pop."""
    if wanted.upper() not in {"PULL", "POP"}:
        raise typer.BadParameter(f"{wanted!r} is neither pull nor pop")

    async def ask(admin: Admin) -> list[str]:
        await group_config(admin, group)
        return await admin.groups.set_consume_mode(
            group, topic, wanted.upper(), pop_share_queues=share
        )

    brokers = administer(namesrv, ask, topic=topic)
    typer.echo(f"{group} will {wanted.lower()} {topic} from {', '.join(brokers)}")
