"""`orbitmq cluster`: lists clusters and their brokers."""

from __future__ import annotations

import typer

from orbitmq.cli.administering import NameServers, administer
from orbitmq.cli.output import AsJson, show_rows
from orbitmq.client.aio.admin import Admin


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(help="List clusters and their brokers.", no_args_is_help=True)
    group.command("list")(list_brokers)
    app.add_typer(group, name="cluster")


def list_brokers(*, namesrv: NameServers = None, as_json: AsJson = False) -> None:
    """List the brokers of every cluster, with their current load."""
    show_rows(administer(namesrv, broker_rows), as_json=as_json, empty="no broker is registered")


async def broker_rows(admin: Admin) -> list[dict[str, object]]:
    """One row per broker: its address, version and load."""
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
                    }
                )
    return rows


def _first(figures: str) -> float:
    """The current rate: the first of the averages over 10 s, 1 min and 10 min."""
    words = figures.split()
    return float(words[0]) if words else 0.0


def _today(state: dict[str, str], name: str) -> int:
    now, morning = (state.get(f"{name}{day}", "0") for day in ("TodayNow", "TodayMorning"))
    return int(now or 0) - int(morning or 0)


def _percent(ratio: str) -> str:
    return f"{float(ratio):.0%}" if ratio else ""
