"""`orbitmq offset`: committed offsets of groups; resets show a preview first."""

from __future__ import annotations

from typing import Annotated

import typer

from orbitmq.cli.administering import NameServers, Yes, administer, confirm, group_config
from orbitmq.cli.completion import Group, Topic
from orbitmq.cli.moments import parse_moment
from orbitmq.cli.output import AsJson, Row, counted, show_rows
from orbitmq.client.aio.admin import Admin
from orbitmq.client.aio.admin.offsets import END_OF_QUEUE, OffsetMove
from orbitmq.clock import SystemClock
from orbitmq.errors import GroupRefusedError, OffsetRefusedError
from orbitmq.model.queues import MessageQueue


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(
        help="Show and change the committed offsets of groups.", no_args_is_help=True
    )
    group.command("show")(show)
    group.command("reset")(reset)
    group.command("set")(set_offset)
    group.command("clone")(clone)
    app.add_typer(group, name="offset")


def show(
    group: Group, topic: Topic, *, namesrv: NameServers = None, as_json: AsJson = False
) -> None:
    """Show a group's committed offsets in a topic, with the bounds of the queues."""

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
            help="earliest, latest, or a time: 2026-01-31T12:30; or how long ago: 15m, 2h, 3d."
        ),
    ],
    only_back: Annotated[
        bool, typer.Option(help="Do not move queues where messages would be skipped.")
    ] = False,
    dry_run: Annotated[bool, typer.Option(help="Only show the preview.")] = False,
    yes: Yes = False,
    namesrv: NameServers = None,
    as_json: AsJson = False,
) -> None:
    """Move a group to another position in a topic, after a preview."""
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
        f"move {group} so that it consumes {counted(again, 'message')} again and skips {skipped}?",
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
    """Set the offset of one queue, for a group without running members."""

    async def ask(admin: Admin) -> tuple[MessageQueue, int | None]:
        await group_config(admin, group)
        name = await admin.brokers.name(broker)
        target = MessageQueue(topic=topic, broker_name=name, queue_id=queue)
        if members := (await admin.groups.connections(group)).connections:
            raise GroupRefusedError(
                f"group {group!r} has {len(members)} members, which would overwrite the offset",
                hint="stop them first, or use orbitmq offset reset, which members follow",
            )
        await _check_offset(admin, target, offset)
        return target, await admin.offsets.committed(group, target)

    target, committed = administer(namesrv, ask, topic=topic)
    confirm(f"move {group} in queue {queue} from {committed} to {offset}?", yes=yes)
    administer(namesrv, lambda admin: admin.offsets.set(group, {target: offset}), topic=topic)
    typer.echo(f"{group} resumes at {offset} in queue {queue} of {topic} on {broker}")


def clone(
    source: Annotated[str, typer.Argument(metavar="FROM-GROUP")],
    target: Annotated[str, typer.Argument(metavar="TO-GROUP")],
    topic: Topic,
    *,
    yes: Yes = False,
    namesrv: NameServers = None,
) -> None:
    """Copy a group's committed offsets in a topic to another group."""

    async def check(admin: Admin) -> None:
        for group in (source, target):
            await group_config(admin, group)

    administer(namesrv, check)
    confirm(f"set the offsets of {target} in {topic} to those of {source}?", yes=yes)
    administer(namesrv, lambda admin: admin.offsets.clone(source, target, topic), topic=topic)
    typer.echo(f"{target} resumes where {source} is")


async def _check_offset(admin: Admin, queue: MessageQueue, offset: int) -> None:
    bounds = await admin.topics.bounds(queue.topic)
    if queue not in bounds:
        known = [one.queue_id for one in bounds if one.broker_name == queue.broker_name]
        raise OffsetRefusedError(
            f"topic {queue.topic!r} has no queue {queue.queue_id} on {queue.broker_name}",
            hint=f"its queues there: {', '.join(map(str, known))}"
            if known
            else "name another broker",
        )
    first, end = bounds[queue].min_offset, bounds[queue].max_offset
    if not first <= offset <= end:
        raise OffsetRefusedError(
            f"offset {offset} is outside queue {queue.queue_id} of {queue.topic!r}",
            hint=f"the queue starts at {first} and ends at {end}",
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
