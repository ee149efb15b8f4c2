"""`orbitmq kv`: key values of the name servers."""

from __future__ import annotations

from typing import Annotated

import typer

from orbitmq.cli.administering import NameServers, Yes, administer, confirm
from orbitmq.cli.output import AsJson, show_rows

Namespace = Annotated[str, typer.Argument(metavar="NAMESPACE")]
Key = Annotated[str, typer.Argument(metavar="KEY")]


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(
        help="Read and change key values of the name servers.", no_args_is_help=True
    )
    group.command("list")(list_values)
    group.command("get")(get)
    group.command("put")(put)
    group.command("delete")(delete)
    app.add_typer(group, name="kv")


def list_values(
    namespace: Namespace, *, namesrv: NameServers = None, as_json: AsJson = False
) -> None:
    """List the keys of a namespace."""
    found = administer(namesrv, lambda admin: admin.key_values.all(namespace))
    show_rows([{"key": key, "value": value} for key, value in found.items()], as_json=as_json)


def get(namespace: Namespace, key: Key, *, namesrv: NameServers = None) -> None:
    """Print the value of a key."""
    typer.echo(administer(namesrv, lambda admin: admin.key_values.get(namespace, key)))


def put(
    namespace: Namespace,
    key: Key,
    value: Annotated[str, typer.Argument(metavar="VALUE")],
    *,
    namesrv: NameServers = None,
) -> None:
    """Set a key on every name server."""
    administer(namesrv, lambda admin: admin.key_values.put(namespace, key, value))


def delete(
    namespace: Namespace, key: Key, *, yes: Yes = False, namesrv: NameServers = None
) -> None:
    """Delete a key on every name server."""
    confirm(f"delete key {key} of {namespace}?", yes=yes)
    administer(namesrv, lambda admin: admin.key_values.delete(namespace, key))
