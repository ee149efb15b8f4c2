"""`orbitmq pipeline run`: runs a pipeline, and shows what it does."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Console

from orbitmq.cli.pipeline_file import File, read
from orbitmq.errors import CommandError

if TYPE_CHECKING:
    from orbitmq.pipelines.plan import Pipeline
    from orbitmq.pipelines.watching.run_record import RunRecord

_STDOUT: Final = "-"
# What shells give to commands that a signal ended, beside its number.
_EXIT_SIGNAL: Final = 128
_PORT_MAX: Final = 65535


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ways:
    """In which ways a run is shown."""

    events: str | None
    metrics_port: int | None
    metrics_host: str

    def open(self, pipeline: Pipeline, record: RunRecord, opened: ExitStack) -> None:
        """Show a run until `opened` closes."""
        if self.events is not None:
            from orbitmq.pipelines.watching.events_file import EventsFile

            record.listeners.append(opened.enter_context(EventsFile(_events_to(self.events))))
        if self.metrics_port is not None:
            from orbitmq.pipelines.watching.metrics import serving

            served = serving(record, host=self.metrics_host, port=self.metrics_port)
            port = opened.enter_context(served)
            self.say(f"metrics http://{self.metrics_host}:{port}/metrics")
        if self.events == _STDOUT:
            return
        from orbitmq.pipelines.plan import ConsoleSink
        from orbitmq.pipelines.watching.lines import Lines
        from orbitmq.pipelines.watching.screen import live_screen

        console = Console()
        # Rows that Spark prints would run across a live screen.
        prints_rows = any(isinstance(sink, ConsoleSink) for sink in pipeline.sinks)
        if console.is_terminal and not prints_rows:
            opened.enter_context(live_screen(record, console))
        else:
            record.listeners.append(Lines(typer.echo))

    def say(self, text: str) -> None:
        """Say something beside what happens."""
        typer.echo(text, err=self.events == _STDOUT)


def run(
    file: File,
    *,
    once: Annotated[
        bool, typer.Option("--once", help="Process what is there now, and end.")
    ] = False,
    master: Annotated[
        str | None,
        typer.Option(help="The Spark to run on, as spark://host:7077; this machine if not given."),
    ] = None,
    events: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Append what happens as JSON lines; - for the output."),
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            min=0, max=_PORT_MAX, help="Serve metrics for Prometheus; 0 takes a free port."
        ),
    ] = None,
    metrics_host: Annotated[str, typer.Option(help="Where metrics are served.")] = "127.0.0.1",
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write an HTML report at the end, and at each signal USR1."
        ),
    ] = None,
) -> None:
    """Run a pipeline until Ctrl-C; it resumes where the last run stopped.

    Exit codes: 0 done or stopped, 1 a query failed, 2 a mistake in the file or command, 3 no server
    can be reached, 130 ended by a second Ctrl-C.
    """
    pipeline = read(file)
    from orbitmq.pipelines.running.runner import Runner
    from orbitmq.pipelines.watching.run_record import RunRecord
    from orbitmq.spark import session

    record, stop = RunRecord(), _Stop()
    ways = _Ways(events=events, metrics_port=metrics_port, metrics_host=metrics_host)
    with ExitStack() as opened:
        stop.listen()
        if report is not None:
            opened.enter_context(_reporting(record, report, ways))
        ways.open(pipeline, record, opened)
        spark = session(pipeline.name, settings={"spark.master": master} if master else None)
        opened.callback(spark.stop)
        # Spark's own handler, set as it starts, cancels the batches that have begun.
        stop.listen()
        Runner(
            pipeline=pipeline, spark=spark, is_once=once, record=record, stopping=stop.asked
        ).run()


@contextmanager
def _reporting(record: RunRecord, file: Path, ways: _Ways) -> Iterator[None]:
    """Write a report at the end, also after a failure, and when a signal asks for it."""
    from orbitmq.pipelines.watching.report import write_report

    if not file.absolute().parent.is_dir():
        raise CommandError(f"--report cannot be {file}: there is no such folder")

    one_at_a_time = threading.Lock()

    def write() -> None:
        # Before that nothing has happened.
        if not record.began_ms:
            return
        try:
            with one_at_a_time:
                write_report(record, file)
        except OSError as error:
            # The exit code is about the run.
            typer.secho(f"orbitmq: no report: {error}", fg=typer.colors.RED, err=True)
        else:
            ways.say(f"report {file}")

    def take(_number: int, _frame: object) -> None:
        # In a thread, as the run may be anywhere now; the file is replaced as a whole.
        threading.Thread(target=write, name="report").start()

    signal.signal(signal.SIGUSR1, take)
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        write()


@dataclass(slots=True)
class _Stop:
    """Ctrl-C: the first asks to stop, the second ends at once."""

    asked: threading.Event = field(default_factory=threading.Event)

    def listen(self) -> None:
        """Take signals from here on."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._take)

    def _take(self, number: int, _frame: object) -> None:
        if self.asked.is_set():
            Console().show_cursor()
            # Spark's processes end with this one; checkpoints are as after a crash.
            os._exit(_EXIT_SIGNAL + number)
        self.asked.set()


def _events_to(target: str) -> IO[bytes]:
    if target == _STDOUT:
        return os.fdopen(os.dup(1), "wb")
    try:
        return Path(target).open("ab")
    except OSError as error:
        raise CommandError(
            f"--events cannot be {target}: {error.strerror}", hint="name a file in a folder"
        ) from error
