"""`orbitmq group`: consumer groups, their members and their lag."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Annotated, Final

import typer
from rich.live import Live

from orbitmq.cli import group_members
from orbitmq.cli.administering import NameServers, Yes, administer, confirm, group_config
from orbitmq.cli.completion import Group
from orbitmq.cli.output import (
    AsJson,
    layout_for,
    show_json,
    show_json_line,
    show_one,
    show_rows,
    time_text,
)
from orbitmq.client.aio.admin import Admin
from orbitmq.client.aio.admin.groups import lag_of
from orbitmq.clock import SystemClock
from orbitmq.model.names import is_system_group

Cluster = Annotated[str | None, typer.Option("-c", "--cluster", help="Only this cluster.")]
_NOTHING_YET: Final = "the group has not consumed anything yet"
Broker = Annotated[
    str | None, typer.Option("-b", "--broker", help="Only on this broker, by name or address.")
]


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(
        help="Manage consumer groups; show their members and lag.", no_args_is_help=True
    )
    group.command("list")(list_groups)
    group.command("show")(show)
    group.command("lag")(lag)
    group.command("create")(create)
    group.command("delete")(delete)
    group_members.add_to(group)
    app.add_typer(group, name="group")


def list_groups(
    *,
    namesrv: NameServers = None,
    everything: Annotated[bool, typer.Option("--all", help="Include system groups.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the groups with their members and lag."""

    async def ask(admin: Admin) -> list[dict[str, object]]:
        rows: list[dict[str, object]] = []
        for name in await admin.groups.configs():
            if is_system_group(name) and not everything:
                continue
            progress = await admin.groups.progress(name)
            connections = await admin.groups.connections(name)
            rows.append(
                {
                    "group": name,
                    "members": len(connections.connections),
                    "consumed_per_second": progress.consumed_per_second,
                    "lag": progress.lag,
                }
            )
        return rows

    show_rows(administer(namesrv, ask), as_json=as_json, empty="there are no groups")


def show(group: Group, *, namesrv: NameServers = None, as_json: AsJson = False) -> None:
    """Show the settings of a group."""
    config = administer(namesrv, lambda admin: group_config(admin, group))
    show_one(
        {
            "group": config.name,
            "may_consume": config.allows_consuming,
            "may_broadcast": config.allows_broadcast,
            "in_order": config.consumes_in_order,
            "retries_max": config.retries_max,
            "retry_queues": config.retry_queues,
            "consume_timeout_minutes": config.consume_timeout_minutes,
            "tells_members_of_changes": config.tells_of_changes,
        },
        as_json=as_json,
    )


def lag(
    group: Group,
    *,
    topic: Annotated[str | None, typer.Option("-t", "--topic", help="Only this topic.")] = None,
    watch: Annotated[
        bool,
        typer.Option("--watch", help="Refresh until Ctrl-C; --json prints one line each time."),
    ] = False,
    interval_seconds: Annotated[
        float, typer.Option("--interval", min=0.2, help="Seconds between refreshes.")
    ] = 2.0,
    namesrv: NameServers = None,
    as_json: AsJson = False,
) -> None:
    """Show the lag of a group, queue by queue and in total."""

    async def ask(admin: Admin) -> None:
        await group_config(admin, group)
        clock = SystemClock()
        with ExitStack() as opened:
            live = opened.enter_context(_live()) if watch and not as_json else None
            while True:
                rows = await _lag_rows(admin, group, topic)
                if live is not None and live.console.is_terminal:
                    shown = layout_for(rows, live.console.width) if rows else _NOTHING_YET
                    live.update(shown, refresh=True)
                else:
                    _print_lag(rows, as_json=as_json, repeats=watch)
                if not watch:
                    return
                await clock.sleep_ms(interval_seconds * 1000)

    administer(namesrv, ask, topic=topic)


def _live() -> Live:
    # If the table is taller than the terminal, its end with the total stays visible.
    return Live(
        auto_refresh=False,
        vertical_overflow="visible",
        redirect_stdout=False,
        redirect_stderr=False,
    )


async def _lag_rows(admin: Admin, group: str, topic: str | None) -> list[dict[str, object]]:
    progress = await admin.groups.progress(group, topic=topic)
    rows: list[dict[str, object]] = [
        {
            "topic": queue.topic,
            "broker": queue.broker_name,
            "queue": queue.queue_id,
            "end": one.broker_offset,
            "consumed": one.consumer_offset,
            "lag": lag_of(one),
            "last_consumed_stored": time_text(one.last_timestamp_ms),
        }
        for queue, one in progress.queues.items()
    ]
    if rows:
        total = dict.fromkeys(rows[0], "") | {"topic": "total", "lag": progress.lag}
        rows.append(total)
    return rows


def _print_lag(rows: list[dict[str, object]], *, as_json: bool, repeats: bool) -> None:
    if as_json:
        total = rows.pop()["lag"] if rows else 0
        show = show_json_line if repeats else show_json
        show({"lag": total, "queues": rows})
    else:
        show_rows(rows, as_json=False, empty=_NOTHING_YET)


def create(  # noqa: PLR0913  # a parameter a flag
    group: Group,
    *,
    retries_max: Annotated[
        int | None,
        typer.Option(min=-1, help="Retries before the dead-letter queue; 16 for a new group."),
    ] = None,
    retry_queues: Annotated[
        int | None, typer.Option(min=0, help="Queues of its retry topic; 1 for a new group.")
    ] = None,
    consuming: Annotated[bool | None, typer.Option(help="Whether it may consume.")] = None,
    broadcasting: Annotated[bool | None, typer.Option(help="Whether it may broadcast.")] = None,
    in_order: Annotated[
        bool | None, typer.Option(help="Whether it consumes queues in order.")
    ] = None,
    tell_of_changes: Annotated[
        bool | None, typer.Option(help="Whether members are notified when others join or leave.")
    ] = None,
    cluster: Cluster = None,
    broker: Broker = None,
    namesrv: NameServers = None,
) -> None:
    """Create a group on all masters, or change the given settings of an existing one."""
    options = {
        "retries_max": retries_max,
        "retry_queues": retry_queues,
        "allows_consuming": consuming,
        "allows_broadcast": broadcasting,
        "consumes_in_order": in_order,
        "tells_of_changes": tell_of_changes,
    }
    given = {name: value for name, value in options.items() if value is not None}
    brokers = administer(
        namesrv, lambda admin: admin.groups.change(group, given, cluster=cluster, broker=broker)
    )
    typer.echo(f"group {group} is set up on {', '.join(brokers)}")


def delete(
    group: Group,
    *,
    cluster: Cluster = None,
    broker: Broker = None,
    keep_offsets: Annotated[bool, typer.Option(help="Keep its committed offsets.")] = False,
    yes: Yes = False,
    namesrv: NameServers = None,
) -> None:
    """Delete a group with its offsets, retries and dead letters."""
    administer(namesrv, lambda admin: group_config(admin, group))
    confirm(f"delete group {group} with its offsets, retries and dead letters?", yes=yes)
    brokers = administer(
        namesrv,
        lambda admin: admin.groups.delete(
            group, cluster=cluster, broker=broker, clean_offsets=not keep_offsets
        ),
    )
    typer.echo(f"group {group} is deleted on {', '.join(brokers)}")
