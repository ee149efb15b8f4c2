"""`orbitmq cluster`: lists brokers, checks them, forgets missing ones."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from orbitmq.cli.administering import NameServers, Yes, administer, confirm
from orbitmq.cli.cluster_health import health
from orbitmq.cli.output import AsJson, show_rows, time_text
from orbitmq.client.aio.admin import Admin
from orbitmq.model.routes import MASTER_ID


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(
        help="List clusters and their brokers, check them, forget missing ones.",
        no_args_is_help=True,
    )
    group.command("list")(list_brokers)
    group.command("health")(health)
    group.command("forget")(forget)
    app.add_typer(group, name="cluster")


def list_brokers(*, namesrv: NameServers = None, as_json: AsJson = False) -> None:
    """List the brokers of every cluster, with their current load, and those that are missing."""
    show_rows(administer(namesrv, broker_rows), as_json=as_json, empty="no broker is registered")


def forget(
    brokers: Annotated[list[str], typer.Argument(metavar="BROKER…")],
    *,
    yes: Yes = False,
    namesrv: NameServers = None,
) -> None:
    """Forget missing brokers that never come back: reads no longer wait for them, or fail."""
    missing = {one.name: one for one in administer(namesrv, lambda admin: admin.brokers.missing())}
    for name in brokers:
        if name in missing:
            since = time_text(missing[name].since_ms)
            confirm(f"forget broker {name}, missing since {since}, and its queues?", yes=yes)
        administer(namesrv, partial(_forget, broker=name))
        typer.echo(f"broker {name} is forgotten")


async def _forget(admin: Admin, *, broker: str) -> None:
    await admin.brokers.forget(broker)


async def broker_rows(admin: Admin) -> list[dict[str, object]]:
    """One row per broker: its address, version and load, or since when it is missing."""
    view = await admin.brokers.clusters()
    rows: list[dict[str, object]] = []
    for cluster, names in sorted(view.clusters.items()):
        for name in sorted(names):
            for number, address in sorted(view.brokers[name].addresses.items()):
                state = await admin.brokers.runtime(address)
                rows.append(
                    {
                        "cluster": cluster,
                        "broker": name,
                        "id": number,
                        "address": address,
                        "version": state.get("brokerVersionDesc", ""),
                        "in_per_second": _first(state.get("putTps", "")),
                        # Compat: RocketMQ 4 misspells it.
                        "out_per_second": _first(
                            state.get("getTransferredTps") or state.get("getTransferedTps", "")
                        ),
                        "messages_today": _today(state, "msgPutTotal"),
                        "disk_used": _percent(state.get("commitLogDiskRatio", "")),
                        "missing_since": None,
                    }
                )
    return rows + [
        {
            "cluster": one.cluster,
            "broker": one.name,
            "id": number,
            "address": address,
            "version": "",
            "in_per_second": 0.0,
            "out_per_second": 0.0,
            "messages_today": 0,
            "disk_used": "",
            "missing_since": time_text(one.since_ms),
        }
        for one in await admin.brokers.missing()
        for number, address in (one.addresses or {MASTER_ID: ""}).items()
    ]


def _first(figures: str) -> float:
    """The current rate: the first of the averages over 10 s, 1 min and 10 min."""
    words = figures.split()
    return float(words[0]) if words else 0.0


def _today(state: dict[str, str], name: str) -> int:
    now, morning = (state.get(f"{name}{day}", "0") for day in ("TodayNow", "TodayMorning"))
    return int(now or 0) - int(morning or 0)


def _percent(ratio: str) -> str:
    return f"{float(ratio):.0%}" if ratio else ""
