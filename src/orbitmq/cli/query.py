"""`orbitmq query`: Spark queries that write exactly once, as brokers know them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from orbitmq.cli.administering import NameServers, Yes, administer, confirm
from orbitmq.cli.output import AsJson, show_rows, time_text

if TYPE_CHECKING:
    from orbitmq.client.aio.admin.queries import KnownQuery

Query = Annotated[
    str,
    typer.Argument(
        metavar="QUERY", help="Spark's id of a stream, or batch/ and the writeId of a batch."
    ),
]


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(
        help="See and forget Spark queries that write exactly once.", no_args_is_help=True
    )
    group.command("list")(list_queries)
    group.command("show")(show)
    group.command("forget")(forget)
    app.add_typer(group, name="query")


def list_queries(*, namesrv: NameServers = None, as_json: AsJson = False) -> None:
    """List the queries that brokers know, with their newest batch."""
    known = administer(namesrv, lambda admin: admin.queries.all())
    show_rows(list(map(_row, known)), as_json=as_json, empty="no query writes exactly once")


def show(query: Query, *, namesrv: NameServers = None, as_json: AsJson = False) -> None:
    """Show what each broker knows of a query."""
    known = administer(namesrv, lambda admin: admin.queries.find(query))
    rows = [
        {
            "broker": name,
            "coordinator": at.coordinator,
            "target": at.target,
            "decided_batch": at.decided if at.decided >= 0 else "",
            "decided": time_text(at.decided_ms),
            "moved_batch": at.batch if at.batch >= 0 else "",
            "rows": at.rows,
            "staged_bytes": at.staged_bytes,
            "complete": at.complete,
        }
        for name, at in sorted(known.at.items())
    ]
    show_rows(
        rows,
        as_json=as_json,
        empty=f"no broker knows it, only the name servers, which name {known.coordinator} as its "
        "coordinator",
    )


def forget(
    query: Query,
    *,
    force: Annotated[
        bool, typer.Option(help="Give up rows of its newest batch that are not moved yet.")
    ] = False,
    yes: Yes = False,
    namesrv: NameServers = None,
) -> None:
    """Forget which batches of a query are written: its next one is written whatever its number."""
    known = administer(namesrv, lambda admin: admin.queries.find(query))
    confirm(
        f"forget that batches up to {known.last_batch} of query {query} are written? "
        "A run that repeats one writes its rows again.",
        yes=yes,
    )
    brokers = administer(namesrv, lambda admin: admin.queries.forget(query, force=force))
    typer.echo(f"query {query} is forgotten on {', '.join([*brokers, 'the name servers'])}")


def _row(known: KnownQuery) -> dict[str, object]:
    return {
        "query": known.query,
        "target": known.target,
        "last_batch": known.last_batch if known.last_batch >= 0 else "",
        "decided": time_text(known.decided_ms),
        "rows": known.rows,
        "staged_bytes": known.staged_bytes,
        "complete": known.complete,
        "coordinator": known.coordinator,
    }
