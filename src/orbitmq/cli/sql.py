"""`orbitmq sql`: queries of topics and system tables, or a shell for them."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Console

from orbitmq.cli.administering import NameServers
from orbitmq.cli.moments import parse_duration
from orbitmq.cli.output import escaped, show_one, time_text
from orbitmq.cli.statements.answers import Output, printed, summary
from orbitmq.clock import SystemClock
from orbitmq.errors import CommandError, PackageMissingError, SettingsError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from orbitmq.cli.statements.asking import Asking
    from orbitmq.pipelines.queries.statements import Statement

TABLE_ROWS: Final = 100
_WATCH_MIN_S: Final = 0.5
_IDLE_MIN_MS: Final = 10_000
_CLEAR: Final = "\x1b[H\x1b[2J"


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("sql")(sql)


def sql(  # noqa: PLR0913  # a parameter a flag
    query: Annotated[
        str | None, typer.Argument(metavar="[QUERY]", help="Without one, a shell.")
    ] = None,
    *,
    output: Annotated[
        Output, typer.Option("--output", "-o", help="How rows are printed; JSON is a line per row.")
    ] = Output.TABLE,
    limit: Annotated[
        int | None,
        typer.Option(min=1, help=f"The most rows to show; {TABLE_ROWS} for tables, all otherwise."),
    ] = None,
    watch: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", min=_WATCH_MIN_S, help="Run it again and again."),
    ] = None,
    local: Annotated[bool, typer.Option("--local", help="Run Spark in this process.")] = False,
    master: Annotated[
        str | None, typer.Option(help="Run on this Spark, as spark://host:7077.")
    ] = None,
    remote: Annotated[
        str | None, typer.Option(help="Run on this Spark Connect server, as sc://host:15002.")
    ] = None,
    idle: Annotated[
        str, typer.Option(help="How long Spark stays in the background without queries.")
    ] = "15m",
    status: Annotated[
        bool, typer.Option("--status", help="Show the Spark in the background.")
    ] = False,
    stop: Annotated[bool, typer.Option("--stop", help="Stop the Spark in the background.")] = False,
    namesrv: NameServers = None,
) -> None:
    """Query topics and system tables with SQL; without a query, in a shell."""
    _check_packages()
    given = {"--local": local, "--master": master, "--remote": remote}
    chosen = [flag for flag, value in given.items() if value]
    if len(chosen) > 1:
        raise CommandError(f"{' and '.join(chosen)} exclude one another", hint="give one of them")
    from orbitmq.cli.statements.asking import Asking

    if status or stop:
        _show_background(is_stop=stop)
        return
    statement = _statement(query) if query is not None else None
    if watch is not None and statement is None:
        raise CommandError("--watch wants a query", hint='as in: orbitmq sql "SELECT …" --watch 2')
    with _spark(local=local, master=master, remote=remote, idle=idle) as (session, is_gone):
        rows_max = limit if limit or output is not Output.TABLE else TABLE_ROWS
        asking = Asking(namesrv, session, rows_max, is_gone)
        if statement is None:
            from orbitmq.cli.statements.shell import run_shell

            run_shell(lambda one: show_answer(asking, one, output), namesrv)
        elif watch is None:
            show_answer(asking, statement, output)
        else:
            _watch(asking, statement, output, watch)


def _check_packages() -> None:
    for package in ("pyspark", "grpc", "prompt_toolkit"):
        if importlib.util.find_spec(package) is None:
            raise PackageMissingError(package, needed_by="orbitmq sql", extra="spark")


def _statement(query: str) -> Statement:
    from orbitmq.pipelines.queries.statements import statement_of

    return statement_of(query)


def show_answer(asking: Asking, statement: Statement, output: Output) -> None:
    """Print the answer to a statement; how many rows and how long on standard error."""
    answer, took_ms = asking.answer(statement)
    for line in printed(answer, output, _width()):
        typer.echo(line)
    if output is Output.TABLE or answer.has_more:
        typer.secho(summary(answer, took_ms), dim=True, err=True)


def _width() -> int:
    console = Console()
    return console.width if console.is_terminal else 0


def _watch(asking: Asking, statement: Statement, output: Output, pause_s: float) -> None:
    clock = SystemClock()
    while True:
        answer, took_ms = asking.answer(statement)
        lines = list(printed(answer, output, _width()))
        if sys.stdout.isatty() and output is Output.TABLE:
            every = f"every {pause_s:g} s: {escaped(statement.sql)}"
            lines = [f"{_CLEAR}{every}  {time_text(clock.now_ms())}", "", *lines]
            lines += ["", summary(answer, took_ms)]
        typer.echo("\n".join(lines))
        asyncio.run(clock.sleep_ms(pause_s * 1000))


def _show_background(*, is_stop: bool) -> None:
    from orbitmq.pipelines.queries.background import BackgroundSpark

    background = BackgroundSpark()
    found = background.stop() if is_stop else background.state.running()
    if found is None:
        typer.secho("no Spark runs in the background", dim=True)
    elif is_stop:
        typer.echo(f"Spark, process {found.pid}, is stopped")
    else:
        show_one(
            {
                "process": found.pid,
                "address": f"127.0.0.1:{found.port}",
                "since": time_text(found.started_ms),
                "idle_minutes_max": found.idle_ms / 60_000,
                "versions": found.versions,
                "log": background.state.log,
            },
            as_json=False,
        )


def _idle_ms(text: str) -> int:
    idle_ms = int(parse_duration(text).total_seconds() * 1000)
    if idle_ms < _IDLE_MIN_MS:
        raise SettingsError(
            f"--idle cannot be {text}: Spark would end between two queries",
            hint=f"give {_IDLE_MIN_MS // 1000}s or more",
        )
    return idle_ms


@contextmanager
def _spark(
    *, local: bool, master: str | None, remote: str | None, idle: str
) -> Iterator[tuple[Callable[[], SparkSession], Callable[[], bool]]]:
    """How to get the session that queries run in, and to know that its Spark has ended."""
    if remote is not None or local or master is not None:
        with _own_session(master, remote) as session:
            yield session, lambda: False
        return
    from orbitmq.pipelines.queries.background import BackgroundSpark

    starting = _StartShown()
    background = BackgroundSpark(
        idle_ms=_idle_ms(idle),
        on_wait=starting.wait,
        on_ready=starting.ready,
    )
    try:
        yield background.session, background.is_gone
    finally:
        background.close()


@contextmanager
def _own_session(master: str | None, remote: str | None) -> Iterator[Callable[[], SparkSession]]:
    """A session of this process alone, made when it is first wanted."""
    made: list[SparkSession] = []

    def session() -> SparkSession:
        if not made and remote is not None:
            from orbitmq.pipelines.queries.background import connected

            made.append(connected(remote))
        elif not made:
            from orbitmq.spark import session as local_session

            settings = {"spark.master": master} if master else None
            made.append(local_session("orbitmq-sql", settings=settings))
        return made[0]

    try:
        yield session
    finally:
        for one in made:
            one.stop()


class _StartShown:
    """Shows on standard error that Spark starts, and how long that takes."""

    def wait(self, took_ms: float) -> None:
        """Spark is starting."""
        if sys.stderr.isatty():
            typer.echo(
                f"\rstarting Spark in the background: {took_ms / 1000:.0f} s", nl=False, err=True
            )

    def ready(self, took_ms: float) -> None:
        """Spark has started."""
        begin = "\r\x1b[K" if sys.stderr.isatty() else ""
        typer.secho(
            f"{begin}Spark started in the background in {took_ms / 1000:.1f} s; later queries use it",
            dim=True,
            err=True,
        )
