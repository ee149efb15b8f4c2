"""The `orbitmq` command: one file a noun, gathered here."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from orbitmq import __version__
from orbitmq.cli import broker, namesrv, store, up
from orbitmq.errors import OrbitError

app = typer.Typer(
    name="orbitmq",
    help="A RocketMQ-compatible message queue whose topics are Spark tables.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
up.add_to(app)
namesrv.add_to(app)
broker.add_to(app)
store.add_to(app)


def _print_version(*, asked: bool) -> None:
    if asked:
        typer.echo(f"orbitmq {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    *,
    version: Annotated[  # its callback does the work
        bool,
        typer.Option(
            "--version",
            help="Print the version and exit.",
            callback=lambda asked: _print_version(asked=asked),
            is_eager=True,
        ),
    ] = False,
) -> None:
    """See the commands below; each has a --help of its own."""


def run() -> None:
    """Run the command line; an error that has a hint is shown without a trace."""
    try:
        app()
    except OrbitError as error:
        typer.secho(f"orbitmq: {error}", fg=typer.colors.RED, err=True)
        sys.exit(1)


if __name__ == "__main__":
    run()
