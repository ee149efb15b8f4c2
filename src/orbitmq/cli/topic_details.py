"""`orbitmq topic traffic | allocation | entries`: details of a topic."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from orbitmq.cli.administering import NameServers, administer, users_topics
from orbitmq.cli.completion import Topic
from orbitmq.cli.output import AsJson, show_rows
from orbitmq.client.aio.admin import Admin
from orbitmq.client.core.consuming.allocation import averagely, sorted_client_ids, sorted_queues
from orbitmq.model.names import is_group_topic
from orbitmq.model.queues import MessageQueue


def add_to(group: typer.Typer) -> None:
    """Add the commands below `orbitmq topic`."""
    group.command("traffic")(traffic)
    group.command("allocation")(allocation)
    group.command("entries")(entries)


def traffic(
    topic: Annotated[str | None, typer.Argument(metavar="[TOPIC]")] = None,
    *,
    active: Annotated[bool, typer.Option(help="Only topics with messages today.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="Include system topics.")] = False,
    namesrv: NameServers = None,
    as_json: AsJson = False,
) -> None:
    """Show how much is sent to topics, and how much each group consumes."""

    async def ask(admin: Admin) -> list[dict[str, object]]:
        if topic:
            names = [topic]
        elif everything:
            names = [name for name in await admin.topics.names() if not is_group_topic(name)]
        else:
            names = await users_topics(admin)
        return [
            dataclasses.asdict(row)
            for name in names
            for row in await admin.traffic.of(name)
            if not active or row.messages_in or row.messages_out
        ]

    show_rows(administer(namesrv, ask, topic=topic), as_json=as_json)


def allocation(
    topic: Topic,
    clients: Annotated[list[str], typer.Argument(metavar="CLIENT-ID…")],
    *,
    namesrv: NameServers = None,
    as_json: AsJson = False,
) -> None:
    """Show which queues each client would get, by the default strategy of consumer groups."""

    async def ask(admin: Admin) -> list[dict[str, object]]:
        queues = sorted_queues(await admin.offsets.queues(topic))
        members = sorted_client_ids(clients)
        return [
            {"client_id": member, "broker": queue.broker_name, "queue": queue.queue_id}
            for member in members
            for queue in averagely("", member, queues, members)
        ]

    show_rows(administer(namesrv, ask, topic=topic), as_json=as_json)


def entries(
    topic: Topic,
    broker: Annotated[str, typer.Argument(metavar="BROKER")],
    queue: Annotated[int, typer.Argument(metavar="QUEUE", min=0)],
    offset: Annotated[int, typer.Argument(metavar="OFFSET", min=0)],
    *,
    count: Annotated[int, typer.Option("-c", "--count", min=1, help="How many.")] = 10,
    group: Annotated[
        str | None,
        typer.Option("-g", "--group", help="Show whether this group's filter matches each."),
    ] = None,
    namesrv: NameServers = None,
    as_json: AsJson = False,
) -> None:
    """Show entries of a queue: where its messages are in the log, and their tag hashes."""
    target = MessageQueue(topic=topic, broker_name=broker, queue_id=queue)
    found = administer(
        namesrv,
        lambda admin: admin.messages.entries(target, offset, count=count, group=group),
        topic=topic,
    )
    rows: list[dict[str, object]] = [
        {
            "offset": offset + number,
            "physical_offset": entry.physical_offset,
            "record_bytes": entry.record_bytes,
            "tag_hash": entry.tag_hash,
            **({"matches": entry.matches} if group else {}),
        }
        for number, entry in enumerate(found.entries)
    ]
    show_rows(
        rows,
        as_json=as_json,
        empty=f"no entries there; the queue has offsets {found.min_offset} to {found.max_offset}",
    )
