"""Commands for messages that are not due yet."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from heapq import nsmallest
from typing import TYPE_CHECKING, Annotated, Final

import typer

from orbitmq.cli.administering import NameServers, Yes, administer, client_keywords, confirm
from orbitmq.cli.moments import parse_moment
from orbitmq.cli.output import AsJson, counted, show_rows, time_text
from orbitmq.cli.pending_scan import scanned
from orbitmq.client.aio import Producer
from orbitmq.clock import SystemClock
from orbitmq.errors import CommandError, MessageNotFoundError, SettingsError

if TYPE_CHECKING:
    from orbitmq.client.aio.admin import Admin
    from orbitmq.client.core.consuming.received_message import ReceivedMessage
    from orbitmq.protocol.requests.pending import PendingMessage

Ids = Annotated[list[str] | None, typer.Argument(metavar="ID…", help="Without one, by --topic …")]
OfTopic = Annotated[str, typer.Option("-t", "--topic", help="Only messages for this topic.")]
DueFrom = Annotated[
    str, typer.Option("--due-from", help="Only messages due from then on: a time, or in 15m, 2h.")
]
DueUntil = Annotated[
    str, typer.Option("--due-until", help="Only messages due until then: a time, or in 15m, 2h.")
]


SEE_PENDING: Final = "see: orbitmq message pending list; nothing was done"


class Span(StrEnum):
    """How long the spans of a count are."""

    MINUTE = "minute"
    HOUR = "hour"
    DAY = "day"


_SPAN_MS: Final = {Span.MINUTE: 60_000, Span.HOUR: 3_600_000, Span.DAY: 86_400_000}


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which messages are meant."""

    topic: str
    due_from_ms: int
    due_until_ms: int

    @property
    def is_all(self) -> bool:
        """Whether nothing was chosen."""
        return not self.topic and not self.due_from_ms and not self.due_until_ms


@dataclass(frozen=True, slots=True)
class Found:
    """A message that is not due yet, and its broker."""

    broker: str
    # Empty for a broker of RocketMQ, which has no requests for this; then with the message.
    address: str
    pending: PendingMessage
    message: ReceivedMessage | None = None

    @property
    def row(self) -> dict[str, object]:
        """What is shown of it."""
        return {
            "message_id": self.pending.message_id,
            "topic": self.pending.topic,
            "due": time_text(self.pending.due_ms),
            "stored": time_text(self.pending.stored_ms),
            "broker": self.broker,
            "keys": self.pending.keys,
            "bytes": self.pending.body_bytes,
        }


def add_to(group: typer.Typer) -> None:
    """Add the commands below `orbitmq message`."""
    commands = typer.Typer(
        help="List, count, recall or deliver messages that are not due yet.", no_args_is_help=True
    )
    commands.command("list")(list_)
    commands.command("count")(count)
    commands.command("recall")(recall)
    commands.command("deliver")(deliver)
    group.add_typer(commands, name="pending")


def list_(
    *,
    topic: OfTopic = "",
    due_from: DueFrom = "",
    due_until: DueUntil = "",
    limit: Annotated[int, typer.Option("-c", "--count", min=1, help="At most this many.")] = 64,
    namesrv: NameServers = None,
    as_json: AsJson = False,
) -> None:
    """List messages that are not due yet, the next one first."""
    chosen = _chosen(topic, due_from, due_until)

    async def ask(admin: Admin) -> list[Found]:
        found: list[Found] = []
        able, unable = await admin.pending.brokers()
        for name, address in able.items():
            number = 0
            # One second more than needed, since a second is not in order.
            last_ms = 0
            async for one in _at(admin, name, address, chosen):
                if number >= limit and one.pending.due_ms // 1000 > last_ms // 1000:
                    break
                found.append(one)
                number, last_ms = number + 1, one.pending.due_ms
        found += await _scanned(admin, unable, chosen)
        if not found:
            await _check_topic(admin, topic)
        return nsmallest(limit, found, key=lambda one: one.pending.due_ms)

    found = administer(namesrv, ask, topic=topic or None)
    show_rows([one.row for one in found], as_json=as_json, empty="no message is pending")


def count(
    *,
    by: Annotated[Span, typer.Option(help="The spans of time to count in.")] = Span.HOUR,
    topic: OfTopic = "",
    due_from: DueFrom = "",
    due_until: DueUntil = "",
    namesrv: NameServers = None,
    as_json: AsJson = False,
) -> None:
    """Count messages that are not due yet by time."""
    span_ms = _SPAN_MS[by]
    chosen = _chosen(topic, due_from, due_until)

    async def ask(admin: Admin) -> Counter[int]:
        counts: Counter[int] = Counter()
        able, unable = await admin.pending.brokers()
        for name, address in able.items():
            if topic:
                async for one in _at(admin, name, address, chosen):
                    counts[one.pending.due_ms // span_ms * span_ms] += 1
            else:
                counts.update(
                    await admin.pending.counts(
                        address,
                        span_ms=span_ms,
                        due_from_ms=chosen.due_from_ms,
                        due_until_ms=chosen.due_until_ms,
                    )
                )
        for one in await _scanned(admin, unable, chosen):
            counts[one.pending.due_ms // span_ms * span_ms] += 1
        if not counts:
            await _check_topic(admin, topic)
        return counts

    rows: list[dict[str, object]] = [
        {"due_from": time_text(start_ms), "messages": number}
        for start_ms, number in sorted(administer(namesrv, ask, topic=topic or None).items())
    ]
    show_rows(rows, as_json=as_json, empty="no message is pending")


def recall(  # options of a command
    message_ids: Ids = None,
    *,
    topic: OfTopic = "",
    due_from: DueFrom = "",
    due_until: DueUntil = "",
    yes: Yes = False,
    namesrv: NameServers = None,
) -> None:
    """Take messages back before they are due."""
    chosen = _chosen(topic, due_from, due_until)
    found = administer(
        namesrv, lambda admin: _wanted(admin, message_ids, chosen), topic=topic or None
    )
    if not message_ids:
        confirm(f"Take back {counted(len(found), 'message')}?", yes=yes)

    async def run(_: Admin) -> None:
        async with Producer("orbitmq-cli", **client_keywords(namesrv)) as producer:
            for one in found:
                await producer.recall(one.pending.recall_handle)
                typer.echo(f"recalled {one.pending.message_id}")

    administer(namesrv, run)


def deliver(  # options of a command
    message_ids: Ids = None,
    *,
    topic: OfTopic = "",
    due_from: DueFrom = "",
    due_until: DueUntil = "",
    yes: Yes = False,
    namesrv: NameServers = None,
) -> None:
    """Deliver messages now, instead of at their due time.

    At a broker of RocketMQ, which has no request for it, each is taken back and then sent again.
    """
    chosen = _chosen(topic, due_from, due_until)
    found = administer(
        namesrv, lambda admin: _wanted(admin, message_ids, chosen), topic=topic or None
    )
    if not message_ids:
        confirm(f"Deliver {counted(len(found), 'message')} now?", yes=yes)

    async def run(admin: Admin) -> None:
        async with Producer("orbitmq-cli", **client_keywords(namesrv)) as producer:
            # A broker of ours brings all forward that have the id.
            for one in {
                (each.broker, each.pending.message_id, each.pending.topic): each for each in found
            }.values():
                pending = one.pending
                if one.message is None:
                    await admin.pending.deliver(one.address, pending.message_id, pending.topic)
                else:
                    await producer.recall(pending.recall_handle)
                    with _saying_what_is_left(one.message, pending.topic):
                        await producer.send(one.message.as_message(pending.topic))
                typer.echo(f"delivered {pending.message_id}")

    administer(namesrv, run)


@contextmanager
def _saying_what_is_left(message: ReceivedMessage, topic: str) -> Iterator[None]:
    """Say how to send a message that was taken back, if that fails, also by Ctrl-C."""
    try:
        yield
    except BaseException:
        typer.secho(
            f"{message.message_id} was taken back, and may not have been sent; send it with: "
            f"orbitmq message resend {message.offset_message_id} --to {topic}",
            err=True,
        )
        raise


def _chosen(topic: str, due_from: str, due_until: str) -> Chosen:
    now_ms = SystemClock().now_ms()
    from_ms, until_ms = (
        parse_moment(text, now_ms=now_ms, is_ahead=True) if text else 0
        for text in (due_from, due_until)
    )
    if due_until and from_ms > until_ms:
        raise CommandError(
            f"--due-from {due_from} is after --due-until {due_until}",
            hint="give the earlier time to --due-from",
        )
    return Chosen(topic, from_ms, until_ms)


async def _check_topic(admin: Admin, topic: str) -> None:
    """Raise if there is no such topic; for when nothing is found, as messages outlive their topic."""
    if topic:
        await admin.topics.route(topic)


async def _wanted(admin: Admin, message_ids: list[str] | None, chosen: Chosen) -> list[Found]:
    """The messages of these ids, or those chosen; nothing is done if one is not pending."""
    able, unable = await admin.pending.brokers()
    if not message_ids:
        if chosen.is_all:
            raise SettingsError(
                "no message is named", hint="give ids, --topic, --due-from or --due-until"
            )
        found = [
            one for name, address in able.items() async for one in _at(admin, name, address, chosen)
        ]
        found += await _scanned(admin, unable, chosen)
        if not found:
            await _check_topic(admin, chosen.topic)
            raise MessageNotFoundError("no pending message matches", hint=SEE_PENDING)
        return found
    named: list[Found] = []
    by_id = {one.pending.message_id: one for one in await _scanned(admin, unable, chosen)}
    for message_id in dict.fromkeys(message_ids):
        # A send that was tried again may be pending at several brokers.
        found = [
            Found(name, address, pending)
            for name, address in able.items()
            for pending in await admin.pending.find(address, message_id)
        ]
        if message_id in by_id:
            found.append(by_id[message_id])
        if not found:
            raise MessageNotFoundError(f"no message {message_id!r} is pending", hint=SEE_PENDING)
        named += found
    return named


async def _at(admin: Admin, name: str, address: str, chosen: Chosen) -> AsyncIterator[Found]:
    async for pending in admin.pending.at(
        address,
        topic=chosen.topic,
        due_from_ms=chosen.due_from_ms,
        due_until_ms=chosen.due_until_ms,
    ):
        yield Found(name, address, pending)


async def _scanned(admin: Admin, brokers: dict[str, str], chosen: Chosen) -> list[Found]:
    """The pending messages of brokers that have no requests for them."""
    if not brokers:
        return []
    return [
        Found(message.broker_name, "", pending, message)
        for pending, message in await scanned(admin)
        if message.broker_name in brokers
        and chosen.topic in {"", pending.topic}
        and chosen.due_from_ms <= pending.due_ms
        and (not chosen.due_until_ms or pending.due_ms <= chosen.due_until_ms)
    ]
