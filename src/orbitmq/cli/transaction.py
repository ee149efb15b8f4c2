"""`orbitmq transaction`: what waits for its end, since when, and who was asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from orbitmq.cli.administering import NameServers, administer
from orbitmq.cli.output import AsJson, show_rows, time_text

if TYPE_CHECKING:
    from orbitmq.protocol.requests.transactions import OpenTransaction

Limit = Annotated[int, typer.Option(min=1, max=1000, help="At most so many of each broker.")]
Id = Annotated[str, typer.Argument(metavar="ID", help="The id of the message.")]


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(help="See open transactions, and check them.", no_args_is_help=True)
    group.command("list")(list_open)
    group.command("show")(show)
    group.command("check")(check)
    app.add_typer(group, name="transaction")


def list_open(*, limit: Limit = 100, namesrv: NameServers = None, as_json: AsJson = False) -> None:
    """List the transactions that wait for their end, those that wait longest first."""
    pages = administer(namesrv, lambda admin: admin.transactions.open(limit=limit))
    rows = [
        {
            "transaction": each.transaction_id,
            "broker": broker,
            "group": each.group,
            "topic": each.topic,
            "since": time_text(each.since_ms),
            "checks": each.checks,
            "asked": time_text(each.asked_ms),
            "producers": each.producers,
        }
        for broker, page in pages.items()
        for each in page.transactions
    ]
    show_rows(rows, as_json=as_json, empty="no transaction is open")
    hidden = sum(page.count - len(page.transactions) for page in pages.values())
    if hidden > 0 and not as_json:
        typer.secho(f"and {hidden} more; show them with --limit", dim=True)


def show(transaction_id: Id, *, namesrv: NameServers = None, as_json: AsJson = False) -> None:
    """Show an open transaction."""
    found = administer(namesrv, lambda admin: admin.transactions.find(transaction_id))
    rows = [_row(broker, each) for broker, several in found.items() for each in several]
    show_rows(rows, as_json=as_json)


def check(
    transaction_id: Annotated[
        str | None,
        typer.Argument(metavar="ID", help="The id of the message; without it, all are checked."),
    ] = None,
    *,
    limit: Limit = 100,
    namesrv: NameServers = None,
    as_json: AsJson = False,
) -> None:
    """Ask producers now how transactions ended."""
    sent = administer(namesrv, lambda admin: admin.transactions.check(transaction_id, limit=limit))
    rows = [
        {
            "broker": broker,
            "asked": each.asked,
            "without_producer": each.without_producer,
            "clients": ", ".join(each.clients),
        }
        for broker, each in sent.items()
    ]
    show_rows(rows, as_json=as_json, empty="no OrbitMQ broker is there")


def _row(broker: str, open_one: OpenTransaction) -> dict[str, object]:
    return {
        "transaction": open_one.transaction_id,
        "broker": broker,
        "group": open_one.group,
        "topic": open_one.topic,
        "queue": open_one.queue_id,
        "keys": open_one.keys,
        "body_bytes": open_one.body_bytes,
        "since": time_text(open_one.since_ms),
        "half_offset": open_one.half_offset,
        "checks": open_one.checks,
        "asked": time_text(open_one.asked_ms),
        "asked_client": open_one.asked_client,
        "producers": open_one.producers,
    }
