"""`orbitmq message pending list | …`: messages that are not due yet.

They are read from the timer topic, so this works with RocketMQ 5 brokers too.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final

import typer

from orbitmq.cli.administering import NameServers, administer, client_keywords
from orbitmq.cli.moments import parse_moment
from orbitmq.cli.output import AsJson, show_rows, time_text
from orbitmq.client.aio import Producer
from orbitmq.clock import SystemClock
from orbitmq.errors import MessageNotFoundError
from orbitmq.model import property_names
from orbitmq.model.names import TIMER_TOPIC
from orbitmq.model.recall_handles import RecallHandle
from orbitmq.store.timers.layout import PRECISION_MS
from orbitmq.store.timers.timer_messages import asked_due_ms, whole_number

if TYPE_CHECKING:
    from orbitmq.client.aio.admin import Admin
    from orbitmq.client.core.consuming.received_message import ReceivedMessage

Ids = Annotated[list[str], typer.Argument(metavar="ID…")]
OfTopic = Annotated[str, typer.Option("-t", "--topic", help="Only messages for this topic.")]
From = Annotated[
    str, typer.Option("--from", help="Only messages stored since: a time, or 15m, 2h, 3d ago.")
]


class Span(StrEnum):
    """How long the spans of a count are."""

    MINUTE = "minute"
    HOUR = "hour"
    DAY = "day"


_SPAN_MS: Final = {Span.MINUTE: 60_000, Span.HOUR: 3_600_000, Span.DAY: 86_400_000}


@dataclass(frozen=True, slots=True)
class Pending:
    """A message that is not due yet."""

    message: ReceivedMessage
    topic: str
    due_ms: int
    handle: RecallHandle

    @property
    def row(self) -> dict[str, object]:
        """What is shown of it."""
        return {
            "message_id": self.handle.unique_id,
            "topic": self.topic,
            "due": time_text(self.due_ms),
            "stored": time_text(self.message.store_ms),
            "broker": self.message.broker_name,
            "keys": " ".join(self.message.keys),
            "bytes": len(self.message.body),
        }


def add_to(group: typer.Typer) -> None:
    """Add the commands below `orbitmq message`."""
    commands = typer.Typer(help="Messages that are not due yet.", no_args_is_help=True)
    commands.command("list")(list_)
    commands.command("count")(count)
    commands.command("recall")(recall)
    commands.command("deliver")(deliver)
    group.add_typer(commands, name="pending")


def list_(
    *,
    topic: OfTopic = "",
    begin: From = "",
    limit: Annotated[int, typer.Option("-c", "--count", min=1, help="At most this many.")] = 64,
    namesrv: NameServers = None,
    as_json: AsJson = False,
) -> None:
    """List messages that are not due yet, the next one first."""

    async def ask(admin: Admin) -> list[Pending]:
        return await _pending(admin, topic=topic, begin=begin)

    found = sorted(administer(namesrv, ask), key=lambda one: one.due_ms)
    show_rows([one.row for one in found[:limit]], as_json=as_json, empty="no message is pending")


def count(
    *,
    by: Annotated[Span, typer.Option(help="The spans of time to count in.")] = Span.HOUR,
    topic: OfTopic = "",
    begin: From = "",
    namesrv: NameServers = None,
    as_json: AsJson = False,
) -> None:
    """Count messages that are not due yet, by topic and time."""

    async def ask(admin: Admin) -> list[Pending]:
        return await _pending(admin, topic=topic, begin=begin)

    span_ms = _SPAN_MS[by]
    counts = Counter(
        (one.due_ms // span_ms * span_ms, one.topic) for one in administer(namesrv, ask)
    )
    rows: list[dict[str, object]] = [
        {"due_from": time_text(start_ms), "topic": name, "messages": number}
        for (start_ms, name), number in sorted(counts.items())
    ]
    show_rows(rows, as_json=as_json, empty="no message is pending")


def recall(
    message_ids: Ids,
    *,
    begin: From = "",
    namesrv: NameServers = None,
) -> None:
    """Take messages back before they are due."""

    async def run(admin: Admin) -> None:
        found = await _named(admin, message_ids, begin)
        async with Producer("orbitmq-cli", **client_keywords(namesrv)) as producer:
            for one in found:
                await producer.recall(one.handle.encode())
                typer.echo(f"recalled {one.handle.unique_id}")

    administer(namesrv, run)


def deliver(
    message_ids: Ids,
    *,
    begin: From = "",
    namesrv: NameServers = None,
) -> None:
    """Bring messages forward: take each back, and send a copy that is delivered at once."""

    async def run(admin: Admin) -> None:
        found = await _named(admin, message_ids, begin)
        async with Producer("orbitmq-cli", **client_keywords(namesrv)) as producer:
            for one in found:
                await producer.recall(one.handle.encode())
                result = await producer.send(one.message.as_message(one.topic))
                typer.echo(f"delivered {one.handle.unique_id} as {result.message_id}")

    administer(namesrv, run)


async def _named(admin: Admin, message_ids: list[str], begin: str) -> list[Pending]:
    """The messages of these ids; nothing is done if one is not pending."""
    by_id = {one.handle.unique_id: one for one in await _pending(admin, topic="", begin=begin)}
    for message_id in message_ids:
        if message_id not in by_id:
            raise MessageNotFoundError(
                f"no message {message_id!r} is pending",
                hint="see: orbitmq message pending list; nothing was done",
            )
    return [by_id[message_id] for message_id in message_ids]


async def _pending(admin: Admin, *, topic: str, begin: str) -> list[Pending]:
    now_ms = SystemClock().now_ms()
    begin_ms = parse_moment(begin, now_ms=now_ms) if begin else 0
    found: dict[tuple[str, str], Pending] = {}
    async for message in admin.messages.between(TIMER_TOPIC, begin_ms, now_ms):
        properties = message.properties
        slot_ms = whole_number(properties.get(property_names.TIMER_DUE_MS))
        name = properties.get(property_names.REAL_TOPIC, "")
        unique_id = properties.get(property_names.UNIQUE_ID, "")
        if slot_ms is None or slot_ms + PRECISION_MS <= now_ms or topic not in {"", name}:
            continue
        if property_names.TIMER_CANCELS in properties:
            found.pop((name, unique_id), None)
            continue
        asked_ms = asked_due_ms(properties, message.store_ms) or slot_ms + PRECISION_MS
        due_ms = min(max(asked_ms, slot_ms + 1), slot_ms + PRECISION_MS)
        if due_ms > now_ms:
            handle = RecallHandle(
                topic=name,
                broker_name=message.broker_name,
                time_ms=slot_ms + 1,
                unique_id=unique_id,
            )
            found[name, unique_id] = Pending(message, name, due_ms, handle)
    return list(found.values())
