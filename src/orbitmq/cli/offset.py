"""`orbitmq offset`: what groups committed, moved with a look ahead."""

from __future__ import annotations

from typing import Annotated

import typer

from orbitmq.cli.administering import NameServers, Yes, administer, confirm, group_config
from orbitmq.cli.completion import Group, Topic
from orbitmq.cli.moments import parse_moment
from orbitmq.cli.output import AsJson, Row, show_rows
from orbitmq.client.aio.admin import Admin
from orbitmq.client.aio.admin.offsets import END_OF_QUEUE, OffsetMove
from orbitmq.clock import SystemClock
from orbitmq.errors import GroupRefusedError, OffsetRefusedError
from orbitmq.model.queues import MessageQueue


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(
        help="What groups committed; resets with a look ahead.", no_args_is_help=True
    )
    group.command("show")(show)
    group.command("reset")(reset)
    group.command("set")(set_offset)
    group.command("clone")(clone)
    app.add_typer(group, name="offset")


def show(
    group: Group, topic: Topic, *, namesrv: NameServers = None, as_json: AsJson = False
) -> None:
    """Show what a group committed in a topic, beside the bounds of its queues."""

    async def ask(admin: Admin) -> list[Row]:
        await group_config(admin, group)
        bounds = await admin.topics.bounds(topic)
        return [
            {
                "broker": queue.broker_name,
                "queue": queue.queue_id,
                "min_offset": one.min_offset,
                "max_offset": one.max_offset,
                "committed": await admin.offsets.committed(group, queue),
            }
            for queue, one in bounds.items()
        ]

    show_rows(administer(namesrv, ask, topic=topic), as_json=as_json)


def reset(
    group: Group,
    topic: Topic,
    *,
    to: Annotated[
        str,
        typer.Option(
            help="earliest, latest, or a time: 2026-01-31T12:30, or 15m, 2h, 3d for so long ago."
        ),
    ],
    only_back: Annotated[
        bool, typer.Option(help="Leave queues alone where messages would be skipped.")
    ] = False,
    dry_run: Annotated[bool, typer.Option(help="Only show what would happen.")] = False,
    yes: Yes = False,
    namesrv: NameServers = None,
    as_json: AsJson = False,
) -> None:
    """Let a group go on from another place; shows first what that means."""
    timestamp_ms = _target(to)

    async def preview(admin: Admin) -> list[OffsetMove]:
        await group_config(admin, group)
        return await admin.offsets.preview(group, topic, timestamp_ms)

    moves = administer(namesrv, preview, topic=topic)
    if only_back:
        moves = [move for move in moves if move.goes_back]
    show_rows([_move_row(move) for move in moves], as_json=as_json, empty="no queue would move")
    if dry_run or not moves:
        return
    again, skipped = sum(one.consumed_again for one in moves), sum(one.skipped for one in moves)
    confirm(
        f"move {group} so that it consumes {again} messages again and never gets {skipped}?",
        yes=yes,
    )
    moved = administer(
        namesrv,
        lambda admin: admin.offsets.reset(group, topic, timestamp_ms, forward=not only_back),
    )
    typer.secho(f"{len(moved)} queues were moved", err=True)


def set_offset(
    group: Group,
    topic: Topic,
    broker: Annotated[str, typer.Argument(metavar="BROKER")],
    queue: Annotated[int, typer.Argument(metavar="QUEUE", min=0)],
    offset: Annotated[int, typer.Argument(metavar="OFFSET", min=0)],
    *,
    yes: Yes = False,
    namesrv: NameServers = None,
) -> None:
    """Let a group that nobody consumes for go on from an offset of one queue."""

    async def ask(admin: Admin) -> tuple[MessageQueue, int | None]:
        await group_config(admin, group)
        name = await admin.brokers.name(broker)
        place = MessageQueue(topic=topic, broker_name=name, queue_id=queue)
        if members := (await admin.groups.connections(group)).connections:
            raise GroupRefusedError(
                f"group {group!r} has {len(members)} members, which would commit over it",
                hint="stop them first, or use orbitmq offset reset, which they follow",
            )
        await _check_place(admin, place, offset)
        return place, await admin.offsets.committed(group, place)

    place, committed = administer(namesrv, ask, topic=topic)
    confirm(f"move {group} in queue {queue} from {committed} to {offset}?", yes=yes)
    administer(namesrv, lambda admin: admin.offsets.set(group, {place: offset}), topic=topic)
    typer.echo(f"{group} goes on at {offset} in queue {queue} of {topic} on {broker}")


def clone(
    source: Annotated[str, typer.Argument(metavar="FROM-GROUP")],
    target: Annotated[str, typer.Argument(metavar="TO-GROUP")],
    topic: Topic,
    *,
    yes: Yes = False,
    namesrv: NameServers = None,
) -> None:
    """Set a group to where another one is in a topic."""

    async def check(admin: Admin) -> None:
        for group in (source, target):
            await group_config(admin, group)

    administer(namesrv, check)
    confirm(f"set the offsets of {target} in {topic} to those of {source}?", yes=yes)
    administer(namesrv, lambda admin: admin.offsets.clone(source, target, topic), topic=topic)
    typer.echo(f"{target} goes on where {source} is")


async def _check_place(admin: Admin, place: MessageQueue, offset: int) -> None:
    bounds = await admin.topics.bounds(place.topic)
    if place not in bounds:
        there = [one.queue_id for one in bounds if one.broker_name == place.broker_name]
        raise OffsetRefusedError(
            f"topic {place.topic!r} has no queue {place.queue_id} on {place.broker_name}",
            hint=f"there are {', '.join(map(str, there))}" if there else "name another broker",
        )
    first, end = bounds[place].min_offset, bounds[place].max_offset
    if not first <= offset <= end:
        raise OffsetRefusedError(
            f"offset {offset} is outside queue {place.queue_id} of {place.topic!r}",
            hint=f"it begins at {first} and ends at {end}",
        )


def _target(to: str) -> int:
    if to == "earliest":
        return 0
    # Compat: mqadmin writes -1.
    if to in {"latest", "-1"}:
        return END_OF_QUEUE
    return parse_moment(to, now_ms=SystemClock().now_ms())


def _move_row(move: OffsetMove) -> dict[str, object]:
    return {
        "broker": move.queue.broker_name,
        "queue": move.queue.queue_id,
        "committed": move.committed,
        "target": move.target,
        "consumed_again": move.consumed_again,
        "skipped": move.skipped,
    }
