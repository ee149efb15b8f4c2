"""`orbitmq topic`: list, describe, create and delete topics."""

from __future__ import annotations

from typing import Annotated

import typer

from orbitmq.cli import topic_details
from orbitmq.cli.administering import NameServers, Yes, administer, confirm, users_topics
from orbitmq.cli.completion import Topic
from orbitmq.cli.output import AsJson, counted, show_rows, time_text
from orbitmq.client.aio.admin import Admin
from orbitmq.errors import RouteNotFoundError
from orbitmq.model.topics import Permission, TopicConfig, permission_text

Cluster = Annotated[str | None, typer.Option("-c", "--cluster", help="Only this cluster.")]

_PERMISSIONS = {
    "rw": Permission.READ | Permission.WRITE,
    "r": Permission.READ,
    "w": Permission.WRITE,
    "none": Permission(0),
}


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(help="List, describe, create and delete topics.", no_args_is_help=True)
    group.command("list")(list_topics)
    group.command("show")(show)
    group.command("stats")(stats)
    group.command("groups")(groups)
    group.command("create")(create)
    group.command("permit")(permit)
    group.command("delete")(delete)
    topic_details.add_to(group)
    app.add_typer(group, name="topic")


def list_topics(
    *,
    namesrv: NameServers = None,
    cluster: Cluster = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Include system topics and retry topics of groups.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List the topics."""

    async def ask(admin: Admin) -> list[str]:
        if everything:
            return await admin.topics.names(cluster=cluster)
        return await users_topics(admin, cluster=cluster)

    rows = [{"topic": name} for name in administer(namesrv, ask)]
    show_rows(rows, as_json=as_json, empty="no topics; create one with: orbitmq topic create TOPIC")


def show(topic: Topic, *, namesrv: NameServers = None, as_json: AsJson = False) -> None:
    """Show the brokers of a topic, and its settings on each."""

    async def ask(admin: Admin) -> list[dict[str, object]]:
        route = await admin.topics.route(topic)
        configs = await admin.topics.config(topic)
        addresses = {group.name: group.addresses for group in route.brokers}
        since = {one.name: time_text(one.since_ms) for one in route.missing_brokers or ()}
        # Name servers take the right to write from all topics of a broker, which does not know it.
        routed = {part.broker_name: part.permission for part in route.queues}
        there: list[dict[str, object]] = [
            {
                "broker": name,
                "address": addresses[name].get(0, ""),
                "read_queues": config.read_queues,
                "write_queues": config.write_queues,
                "permission": permission_text(config.permission & routed.get(name, ~0)),
                "ordered": config.order,
                "attributes": " ".join(
                    f"{key}={value}" for key, value in config.attributes.items()
                ),
                "missing_since": None,
            }
            for name, config in configs.items()
        ]
        if route.filter_servers:
            for row in there:
                row["filter_servers"] = route.filter_servers.get(str(row["address"]), [])
        return there + [
            {
                "broker": part.broker_name,
                "address": "",
                "read_queues": part.read_queues,
                "write_queues": part.write_queues,
                "permission": permission_text(part.permission),
                "ordered": None,
                "attributes": "",
                "missing_since": since[part.broker_name],
                **({"filter_servers": []} if route.filter_servers else {}),
            }
            for part in route.missing_queues or ()
        ]

    show_rows(administer(namesrv, ask, topic=topic), as_json=as_json)


def stats(topic: Topic, *, namesrv: NameServers = None, as_json: AsJson = False) -> None:
    """Show the min and max offset of each queue of a topic."""
    bounds = administer(namesrv, lambda admin: admin.topics.bounds(topic), topic=topic)
    rows = [
        {
            "broker": queue.broker_name,
            "queue": queue.queue_id,
            "min_offset": one.min_offset,
            "max_offset": one.max_offset,
            "messages": one.max_offset - one.min_offset,
            "last_stored": time_text(one.last_update_ms),
        }
        for queue, one in bounds.items()
    ]
    show_rows(rows, as_json=as_json)


def groups(topic: Topic, *, namesrv: NameServers = None, as_json: AsJson = False) -> None:
    """List the groups that consume a topic."""
    found = administer(namesrv, lambda admin: admin.topics.consumers(topic), topic=topic)
    show_rows([{"group": name} for name in found], as_json=as_json, empty="no group consumes it")


def create(  # noqa: PLR0913  # a parameter a flag
    topic: Topic,
    *,
    queues: Annotated[
        int | None,
        typer.Option("-q", "--queues", min=1, help="Queues on each broker; 8 for a new topic."),
    ] = None,
    write_queues: Annotated[
        int | None, typer.Option(min=1, help="Queues to send to, if not all.")
    ] = None,
    permission: Annotated[
        str | None, typer.Option(help="rw, r, w or none; rw for a new topic.")
    ] = None,
    ordered: Annotated[
        bool | None, typer.Option(help="Keep the order when brokers are added or removed.")
    ] = None,
    attributes: Annotated[
        str, typer.Option(help="Attribute changes: +message.type=FIFO,-cleanup.policy.")
    ] = "",
    cluster: Cluster = None,
    broker: Annotated[
        str | None, typer.Option("-b", "--broker", help="Only on this broker, by name or address.")
    ] = None,
    yes: Yes = False,
    namesrv: NameServers = None,
) -> None:
    """Create a topic on all masters, or change the given settings of an existing one."""
    bits = None if permission is None else _permission_of(permission)
    existing, elsewhere = administer(
        namesrv, lambda admin: _existing(admin, topic, cluster, broker)
    )
    fewer = [
        f"{config.read_queues}/{config.write_queues} on {name}"
        for name, config in existing.items()
        if (queues or config.read_queues) < config.read_queues
        or (write_queues or queues or config.write_queues) < config.write_queues
    ]
    if fewer:
        confirm(
            f"reduce the queues of topic {topic}, now {', '.join(fewer)} (read/write)?",
            yes=yes,
        )
    brokers = administer(
        namesrv,
        lambda admin: admin.topics.create(
            topic,
            queues=queues,
            write_queues=write_queues,
            permission=bits,
            ordered=ordered,
            attributes=attributes,
            cluster=cluster,
            broker=broker,
        ),
    )
    old = [name for name in brokers if name in existing]
    new = [name for name in brokers if name not in existing]
    if queues is not None:
        old, new = [], list(brokers)
    if old:
        is_asked = bits is not None or ordered is not None or write_queues or attributes
        state = "is changed" if is_asked else "stays as it is"
        typer.echo(f"topic {topic} {state} on {', '.join(old)}")
    if new:
        number = counted(queues or elsewhere.read_queues, "queue")
        typer.echo(f"topic {topic} has {number} on {', '.join(new)}")


async def _existing(
    admin: Admin, topic: str, cluster: str | None, broker: str | None
) -> tuple[dict[str, TopicConfig], TopicConfig]:
    """The topic's settings on the chosen brokers that have it, and what others would get."""
    elsewhere = await admin.topics.settings_elsewhere(topic)
    try:
        configs = await admin.topics.config(topic)
    except RouteNotFoundError:
        return {}, elsewhere
    if broker is not None:
        chosen = {await admin.brokers.name(broker)}
    else:
        chosen = set(await admin.brokers.addresses(cluster=cluster))
    return {name: config for name, config in configs.items() if name in chosen}, elsewhere


def delete(
    topic: Topic, *, cluster: Cluster = None, yes: Yes = False, namesrv: NameServers = None
) -> None:
    """Delete a topic with all its messages."""
    bounds = administer(namesrv, lambda admin: admin.topics.bounds(topic), topic=topic)
    count = sum(one.max_offset - one.min_offset for one in bounds.values())
    confirm(f"delete topic {topic} with its {counted(count, 'message')}?", yes=yes)
    brokers = administer(namesrv, lambda admin: admin.topics.delete(topic, cluster=cluster))
    typer.echo(f"topic {topic} is deleted on {', '.join(brokers)}")


def permit(
    topic: Topic,
    permission: Annotated[str, typer.Argument(metavar="rw|r|w|none")],
    *,
    cluster: Cluster = None,
    broker: Annotated[
        str | None, typer.Option("-b", "--broker", help="Only on this broker, by name or address.")
    ] = None,
    namesrv: NameServers = None,
) -> None:
    """Set whether a topic may be read, written, both or neither."""
    bits = _permission_of(permission)
    changed = administer(
        namesrv,
        lambda admin: admin.topics.set_permission(topic, bits, cluster=cluster, broker=broker),
        topic=topic,
    )
    typer.echo(f"topic {topic} has permission {permission_text(bits)} on {', '.join(changed)}")


def _permission_of(text: str) -> int:
    # Compat: mqadmin writes the bits as a number.
    if text in {"2", "4", "6"}:
        return int(text)
    if text not in _PERMISSIONS:
        raise typer.BadParameter(f"{text!r} is not one of {', '.join(_PERMISSIONS)}")
    return int(_PERMISSIONS[text])
