"""`orbitmq message consume | probe`: deliver a message to a consumer, time sends."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from orbitmq.cli.administering import NameServers, administer, client_keywords, group_config
from orbitmq.cli.completion import Group, Topic
from orbitmq.cli.output import AsJson, show_json, show_one, show_rows
from orbitmq.client.aio import Producer
from orbitmq.client.aio.admin import Admin
from orbitmq.clock import SystemClock
from orbitmq.errors import GroupMissingError, OrbitError
from orbitmq.model.messages import Message
from orbitmq.protocol.requests.relays import DirectResult


def add_to(group: typer.Typer) -> None:
    """Add the commands below `orbitmq message`."""
    group.command("consume")(consume)
    group.command("probe")(probe)


def consume(
    message_id: Annotated[str, typer.Argument(metavar="ID")],
    group: Group,
    client_id: Annotated[str | None, typer.Argument(metavar="[CLIENT-ID]")] = None,
    *,
    topic: Annotated[
        str,
        typer.Option("-t", "--topic", help="Its topic; required for an id that a producer made."),
    ] = "",
    namesrv: NameServers = None,
    as_json: AsJson = False,
) -> None:
    """Have a consumer process one message now, whatever its offsets; shows the result."""

    async def ask(admin: Admin) -> tuple[str, DirectResult]:
        await group_config(admin, group)
        message = await admin.messages.by_id(message_id, topic=topic)
        member = client_id or await _any_member(admin, group)
        return member, await admin.groups.consume_directly(group, member, message)

    member, result = administer(namesrv, ask, topic=topic or None)
    show_one(
        {
            "client_id": member,
            "result": str(result.outcome),
            "took_ms": result.spent_ms,
            "remark": result.remark,
        },
        as_json=as_json,
    )


async def _any_member(admin: Admin, group: str) -> str:
    members = (await admin.groups.connections(group)).connections
    if not members:
        raise GroupMissingError(
            f"group {group!r} has no members now", hint="start one of its consumers"
        )
    return min(one.client_id for one in members)


def probe(
    topic: Topic,
    *,
    count: Annotated[int, typer.Option("-c", "--count", min=1, help="How many messages.")] = 20,
    body_bytes: Annotated[int, typer.Option("--bytes", min=1, help="Size of each body.")] = 128,
    namesrv: NameServers = None,
    as_json: AsJson = False,
) -> None:
    """Send test messages to a topic and time them; every broker has a topic of its own name."""
    clock = SystemClock()

    async def send_all() -> list[dict[str, object]]:
        rows: list[dict[str, object]] = []
        async with Producer("orbitmq-cli", **client_keywords(namesrv)) as producer:
            for number in range(count):
                started_ms = clock.monotonic_ms()
                broker, queue, outcome = "", -1, "OK"
                try:
                    result = await producer.send(Message(topic, b"x" * body_bytes))
                    broker, queue = result.queue.broker_name, result.queue.queue_id
                except OrbitError as error:
                    if not rows:
                        raise
                    outcome = str(error)
                took_ms = round(clock.monotonic_ms() - started_ms, 2)
                rows.append(
                    {
                        "number": number,
                        "broker": broker,
                        "queue": queue,
                        "took_ms": took_ms,
                        "result": outcome,
                    }
                )
        return rows

    rows = asyncio.run(send_all())
    times = sorted(float(str(row["took_ms"])) for row in rows)
    average = sum(times) / len(times)
    if as_json:
        show_json({"sends": rows, "average_ms": average})
        return
    show_rows(rows, as_json=False)
    typer.echo(f"average {average:.2f} ms, slowest {times[-1]:.2f} ms")
