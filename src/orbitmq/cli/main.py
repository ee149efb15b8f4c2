"""The `orbitmq` command: one file a noun, gathered here."""

from __future__ import annotations

import importlib
import sys
from typing import Annotated

import typer

from orbitmq import __version__
from orbitmq.cli.mqadmin.names import as_our_command, nearest_command
from orbitmq.cli.own_command import own_command
from orbitmq.errors import (
    ArchiveMissingError,
    ClusterMissingError,
    CommandError,
    GroupMissingError,
    MessageNotFoundError,
    NameServersUnreachableError,
    OrbitError,
    PipelineFileError,
    QueryMissingError,
    TopicMissingError,
    TransactionMissingError,
    TransportError,
)

# Each is a module of this package, which adds its commands.
NOUNS = (
    "up",
    "topic",
    "group",
    "message",
    "dlq",
    "offset",
    "cluster",
    "broker",
    "kv",
    "query",
    "transaction",
    "namesrv",
    "filterserver",
    "store",
    "cut",
    "audit",
    "pipeline",
    "lake",
    "replay",
    "sql",
)


EXIT_FAILED = 1
EXIT_WRONG_COMMAND = 2
EXIT_UNREACHABLE = 3
EXIT_MISSING = 4
# What shells give to commands that Ctrl-C ended.
EXIT_INTERRUPTED = 130
_MISSING = (
    ArchiveMissingError,
    ClusterMissingError,
    GroupMissingError,
    MessageNotFoundError,
    QueryMissingError,
    TopicMissingError,
    TransactionMissingError,
)


def _print_version(*, asked: bool) -> None:
    if asked:
        typer.echo(f"orbitmq {__version__}")
        raise typer.Exit


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
    """Each command below has its own --help."""


def command_for(words: list[str]) -> typer.Typer:
    """Build the command with only the noun that the command line uses, or with all."""
    app = typer.Typer(
        name="orbitmq",
        help="A RocketMQ-compatible message queue whose topics are Spark tables.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
    )
    app.callback()(_root)
    # Perf: importing all servers and clients takes a second; a command needs only one noun.
    for noun in [words[0]] if words and words[0] in NOUNS else NOUNS:
        importlib.import_module(f"orbitmq.cli.{noun}").add_to(app)
    return app


def check_command(words: list[str]) -> None:
    """Raise if the first word is no command; suggests the nearest one, ours or mqadmin's."""
    if not words or words[0].startswith("-") or words[0] in NOUNS:
        return
    nearest = nearest_command(words[0], NOUNS)
    hint = f"did you mean {nearest}?" if nearest else f"commands: {', '.join(NOUNS)}"
    raise CommandError(f"there is no command {words[0]!r}", hint=hint)


def run() -> None:
    """Run the command line; errors are shown with their hint, without a traceback.

    Exit codes: 0 done, 1 refused or failed, 2 wrong command or pipeline file, 3 no server can be reached,
    4 the named thing does not exist, 5 the user did not say yes, 130 interrupted.
    """
    try:
        words = as_our_command(sys.argv[1:])
        check_command(words)
        command_for(words)(words)
    except NameServersUnreachableError as error:
        # The flag is what this user can change; the hint is for programs.
        typer.secho(f"orbitmq: {error.args[0]}", fg=typer.colors.RED, err=True)
        advice = f"give --namesrv HOST:PORT, or start a cluster here with: {own_command()} up"
        typer.secho(advice, dim=True, err=True)
        sys.exit(exit_code_of(error))
    except OrbitError as error:
        typer.secho(f"orbitmq: {error}", fg=typer.colors.RED, err=True)
        sys.exit(exit_code_of(error))
    except OSError as error:
        # The system's own message, for example that the disk is full.
        typer.secho(f"orbitmq: {error}", fg=typer.colors.RED, err=True)
        sys.exit(EXIT_FAILED)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)


def exit_code_of(error: OrbitError) -> int:
    """The exit code that tells scripts what went wrong."""
    if isinstance(error, TransportError):
        return EXIT_UNREACHABLE
    if isinstance(error, CommandError | PipelineFileError):
        return EXIT_WRONG_COMMAND
    return EXIT_MISSING if isinstance(error, _MISSING) else EXIT_FAILED


if __name__ == "__main__":
    run()
