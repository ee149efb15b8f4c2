"""`orbitmq message consume | probe`: hand a message to a consumer, time sends."""

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
    topic: Annotated[str, typer.Option("-t", "--topic", help="Needed for a producer's id.")] = "",
    namesrv: NameServers = None,
    as_json: AsJson = False,
) -> None:
    """Let a consumer take one message now, whatever its offsets say; shows how that ended."""

    async def ask(admin: Admin) -> tuple[str, DirectResult]:
        await group_config(admin, group)
        message = await admin.messages.by_id(message_id, topic=topic)
        taker = client_id or await _any_member(admin, group)
        return taker, await admin.groups.consume_directly(group, taker, message)

    taker, result = administer(namesrv, ask, topic=topic or None)
    show_one(
        {
            "client_id": taker,
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
            f"nobody consumes for group {group!r} at present", hint="start one of its consumers"
        )
    return min(one.client_id for one in members)


def probe(
    topic: Topic,
    *,
    count: Annotated[int, typer.Option("-c", "--count", min=1, help="How many messages.")] = 20,
    body_bytes: Annotated[int, typer.Option("--bytes", min=1, help="How large each is.")] = 128,
    namesrv: NameServers = None,
    as_json: AsJson = False,
) -> None:
    """Send messages to a topic, and show how long each took; a broker has a topic of its name."""
    clock = SystemClock()

    async def send_all() -> list[dict[str, object]]:
        rows: list[dict[str, object]] = []
        async with Producer("orbitmq-cli", **client_keywords(namesrv)) as producer:
            for number in range(count):
                begun_ms = clock.monotonic_ms()
                broker, queue, ended = "", -1, "OK"
                try:
                    result = await producer.send(Message(topic, b"x" * body_bytes))
                    broker, queue = result.queue.broker_name, result.queue.queue_id
                except OrbitError as error:
                    if not rows:
                        raise
                    ended = str(error)
                took_ms = round(clock.monotonic_ms() - begun_ms, 2)
                rows.append(
                    {
                        "number": number,
                        "broker": broker,
                        "queue": queue,
                        "took_ms": took_ms,
                        "result": ended,
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
