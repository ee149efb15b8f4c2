"""`orbitmq message`: send messages, follow topics, find messages."""

from __future__ import annotations

import asyncio
import heapq
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from orbitmq.cli import message_pending, message_trace, message_trials
from orbitmq.cli.administering import NameServers, administer, client_keywords, require_target
from orbitmq.cli.completion import Topic
from orbitmq.cli.message_output import message_row, print_message, print_sent
from orbitmq.cli.moments import as_datetime, parse_duration, parse_moment
from orbitmq.cli.output import AsJson, show_json, show_one
from orbitmq.client.aio import LitePullConsumer, Producer
from orbitmq.client.aio.admin import Admin
from orbitmq.client.core.consuming.received_message import ReceivedMessage
from orbitmq.clock import SystemClock
from orbitmq.errors import CommandError, OrbitError, SettingsError
from orbitmq.model.messages import Message
from orbitmq.model.names import TOOLS_GROUP
from orbitmq.model.queues import MessageQueue

MessageIds = Annotated[list[str], typer.Argument(metavar="ID…")]
OfTopic = Annotated[
    str, typer.Option("-t", "--topic", help="Its topic; required for an id that a producer made.")
]
_COLLECT_MS = 1000
# Gives up on existing messages that do not arrive for this long.
_GIVE_UP_MS = 30_000


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(
        help="Send, follow, find and trace messages; see those not due yet.", no_args_is_help=True
    )
    group.command("send")(send)
    group.command("resend")(resend)
    group.command("tail")(tail)
    group.command("find")(find)
    group.command("show")(show)
    group.command("at")(at)
    message_trials.add_to(group)
    message_pending.add_to(group)
    message_trace.add_to(group)
    app.add_typer(group, name="message")


def send(  # noqa: PLR0913  # a parameter a flag
    topic: Topic,
    body: Annotated[
        str,
        typer.Argument(metavar="BODY", help="The text; - reads one message per line from stdin."),
    ],
    *,
    tags: Annotated[str, typer.Option(help="The tag.")] = "",
    keys: Annotated[str, typer.Option(help="Keys to find it by, separated by commas.")] = "",
    properties: Annotated[
        list[str] | None,
        typer.Option("--property", "-p", metavar="NAME=VALUE", help="A property; may be repeated."),
    ] = None,
    delay_level: Annotated[
        int, typer.Option(min=0, help="The delay level; by default, level 1 is 1 s.")
    ] = 0,
    delay: Annotated[str, typer.Option(help="Deliver it after this long: 90s, 15m, 2h, 3d.")] = "",
    deliver_at: Annotated[
        str, typer.Option(help="Deliver it then: 2026-01-31T12:30; or in 15m, 2h, 3d.")
    ] = "",
    broker: Annotated[str | None, typer.Option(help="The broker of --queue.")] = None,
    queue: Annotated[int | None, typer.Option(min=0, help="The queue to send to.")] = None,
    namesrv: NameServers = None,
    as_json: AsJson = False,
) -> None:
    """Send a message; returns once the broker has stored it."""
    if (broker is None) != (queue is None):
        raise SettingsError("--broker and --queue go together", hint="give both or neither")
    _check_one_delay({"--delay-level": delay_level, "--delay": delay, "--deliver-at": deliver_at})
    now_ms = SystemClock().now_ms()
    due_ms = parse_moment(deliver_at, now_ms=now_ms, is_ahead=True) if deliver_at else None
    bodies = [line.rstrip("\n") for line in sys.stdin] if body == "-" else [body]
    pairs = [text.partition("=") for text in properties or []]
    messages = [
        Message(
            topic,
            text,
            tags=tags,
            keys=keys,
            properties={name: value for name, _, value in pairs},
            delay_level=delay_level,
            delay=parse_duration(delay) if delay else None,
            deliver_at=None if due_ms is None else as_datetime(due_ms),
        )
        for text in bodies
    ]
    target = None
    if broker is not None and queue is not None:
        target = MessageQueue(topic=topic, broker_name=broker, queue_id=queue)

    async def send_all() -> None:
        async with Producer("orbitmq-cli", **client_keywords(namesrv)) as producer:
            for number, message in enumerate(messages, 1):
                with _reporting_line(number if body == "-" else None):
                    result = await producer.send(message, queue=target)
                print_sent(result, as_json=as_json)

    asyncio.run(send_all())


def _check_one_delay(flags: dict[str, object]) -> None:
    given = [name for name, value in flags.items() if value]
    if len(given) > 1:
        raise CommandError(
            f"{' and '.join(given)} exclude each other", hint="a message has one of them"
        )


def resend(
    message_ids: MessageIds,
    *,
    topic: OfTopic = "",
    to: Annotated[
        str, typer.Option("--to", help="The topic to send to.", show_default="the original one")
    ] = "",
    namesrv: NameServers = None,
    as_json: AsJson = False,
) -> None:
    """Send copies of stored messages, such as dead letters; delays are not repeated."""

    async def run(admin: Admin) -> None:
        if to:
            await require_target(admin, to)
        found = [await admin.messages.by_id(one, topic=topic) for one in message_ids]
        async with Producer("orbitmq-cli", **client_keywords(namesrv)) as producer:
            for message in found:
                print_sent(await producer.send(message.as_message(to)), as_json=as_json)

    administer(namesrv, run, topic=topic or None)


@contextmanager
def _reporting_line(number: int | None) -> Iterator[None]:
    """Report the line of the input at which a send failed."""
    try:
        yield
    except OrbitError:
        if number is not None:
            typer.secho(f"stopped at line {number}; the lines before it were sent", err=True)
        raise


def tail(
    topic: Topic,
    *,
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Wait for more, until Ctrl-C.")
    ] = False,
    count: Annotated[int, typer.Option("-c", "--count", min=0, help="How many per queue.")] = 10,
    tags: Annotated[str, typer.Option(help="Only these tags: a || b.")] = "*",
    namesrv: NameServers = None,
    as_json: AsJson = False,
) -> None:
    """Show the last messages of a topic; with --follow, also new ones as they arrive."""

    async def run(admin: Admin) -> None:
        queues = await admin.offsets.queues(topic)
        keywords = client_keywords(namesrv)
        async with LitePullConsumer(TOOLS_GROUP, auto_commit=False, **keywords) as consumer:
            consumer.assign(queues, tags)
            unread: dict[MessageQueue, int] = {}
            for queue in queues:
                end = await admin.offsets.end(queue)
                start = max(await admin.offsets.first(queue), end - count)
                await consumer.seek(queue, start)
                if end > start:
                    unread[queue] = end
            quiet_ms = 0
            while follow or (unread and quiet_ms < _GIVE_UP_MS):
                messages = await _next_messages(consumer, unread)
                quiet_ms = 0 if messages else quiet_ms + _COLLECT_MS
                # Polls return one queue after the other.
                for message in sorted(messages, key=lambda each: each.store_ms):
                    print_message(message, as_json=as_json)
                for queue, end in tuple(unread.items()):
                    # Messages that the filter rejects never arrive.
                    if (consumer.position(queue) or 0) >= end:
                        del unread[queue]

    administer(namesrv, run, topic=topic)


async def _next_messages(
    consumer: LitePullConsumer, unread: dict[MessageQueue, int]
) -> list[ReceivedMessage]:
    """Collect the messages that existed at the start; after those, new arrivals.

    `unread` holds the end at the start of each queue that was not read to there yet.
    """
    clock = SystemClock()
    end_ms = clock.monotonic_ms() + _COLLECT_MS
    found: list[ReceivedMessage] = []
    while messages := await consumer.poll(timeout_ms=_COLLECT_MS):
        found += messages
        for message in messages:
            if message.queue_offset + 1 >= unread.get(message.queue, 0):
                unread.pop(message.queue, None)
        if not unread or clock.monotonic_ms() >= end_ms:
            break
    return found


def find(  # noqa: PLR0913  # a parameter a flag
    topic: Topic,
    *,
    key: Annotated[str, typer.Option(help="One of its keys.")] = "",
    begin: Annotated[
        str, typer.Option("--from", help="A time: 2026-01-31T12:30; or 15m, 2h, 3d ago.")
    ] = "",
    end: Annotated[str, typer.Option("--to", help="A time, like --from.")] = "now",
    tags: Annotated[str, typer.Option(help="Only these tags: a || b.")] = "*",
    broker: Annotated[str | None, typer.Option(help="Only from this broker.")] = None,
    queue: Annotated[int | None, typer.Option(min=0, help="Only from this queue.")] = None,
    count: Annotated[int, typer.Option("-c", "--count", min=1, help="At most this many.")] = 64,
    newest: Annotated[
        bool, typer.Option("--newest", help="The newest of the span, oldest first; as by key.")
    ] = False,
    namesrv: NameServers = None,
    as_json: AsJson = False,
) -> None:
    """Find messages of a topic by key, by time, or both."""
    if not key and not begin:
        raise SettingsError("no key and no time given", hint="give --key, or --from and --to")
    now_ms = SystemClock().now_ms()
    begin_ms = parse_moment(begin, now_ms=now_ms) if begin else 0
    end_ms = parse_moment(end, now_ms=now_ms)

    wanted = {tag.strip() for tag in tags.split("||")}

    def is_wanted(message: ReceivedMessage) -> bool:
        return (
            ("*" in wanted or message.tags in wanted)
            and broker in {None, message.broker_name}
            and queue in {None, message.queue_id}
        )

    async def ask(admin: Admin) -> list[ReceivedMessage]:
        if key:
            by_key = await admin.messages.by_key(
                topic, key, count_max=count, begin_ms=begin_ms, end_ms=end_ms
            )
            return list(filter(is_wanted, by_key))
        between = admin.messages.between(topic, begin_ms, end_ms, broker=broker, queue_id=queue)
        matching = (message async for message in between if is_wanted(message))
        return await (_newest if newest else _first)(matching, count)

    messages = administer(namesrv, ask, topic=topic)
    _print_found(messages, as_json=as_json)
    if not messages:
        typer.secho("nothing found", dim=True, err=True)
        raise typer.Exit(4)


async def _first(messages: AsyncIterator[ReceivedMessage], count: int) -> list[ReceivedMessage]:
    found: list[ReceivedMessage] = []
    async for message in messages:
        found.append(message)
        if len(found) == count:
            break
    return found


async def _newest(messages: AsyncIterator[ReceivedMessage], count: int) -> list[ReceivedMessage]:
    found: list[tuple[int, int, ReceivedMessage]] = []
    number = 0
    async for message in messages:
        # Numbered, since messages stored at the same time cannot be compared.
        heapq.heappush(found, (message.store_ms, number, message))
        number += 1
        if len(found) > count:
            heapq.heappop(found)
    return [message for _, _, message in sorted(found)]


def show(
    message_ids: MessageIds,
    *,
    topic: OfTopic = "",
    namesrv: NameServers = None,
    as_json: AsJson = False,
) -> None:
    """Show messages by their ids."""

    async def ask(admin: Admin) -> list[ReceivedMessage]:
        return [await admin.messages.by_id(one, topic=topic) for one in message_ids]

    _show_messages(administer(namesrv, ask, topic=topic or None), as_json=as_json)


def at(
    topic: Topic,
    broker: Annotated[str, typer.Argument(metavar="BROKER")],
    queue: Annotated[int, typer.Argument(metavar="QUEUE", min=0)],
    offset: Annotated[int, typer.Argument(metavar="OFFSET", min=0)],
    *,
    count: Annotated[int, typer.Option("-c", "--count", min=1, help="How many messages.")] = 1,
    namesrv: NameServers = None,
    as_json: AsJson = False,
) -> None:
    """Show the message at an offset of a queue; with --count, also those after it."""
    target = MessageQueue(topic=topic, broker_name=broker, queue_id=queue)

    async def ask(admin: Admin) -> list[ReceivedMessage]:
        first = await admin.messages.at(target, offset)
        following = range(offset + 1, min(offset + count, await admin.offsets.end(target)))
        return [first, *[await admin.messages.at(target, one) for one in following]]

    _show_messages(administer(namesrv, ask, topic=topic), as_json=as_json)


def _print_found(messages: list[ReceivedMessage], *, as_json: bool) -> None:
    if as_json:
        show_json([message_row(message) for message in messages])
        return
    for message in messages:
        print_message(message, as_json=False)


def _show_messages(messages: list[ReceivedMessage], *, as_json: bool) -> None:
    found = [message_row(message) for message in messages]
    if as_json:
        show_json(found)
        return
    for row in found:
        show_one(row, as_json=False)
