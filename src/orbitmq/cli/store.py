"""`orbitmq store`: inspect a store, verify it, rebuild its queues, accept a loss.

Exit codes: 0 no problems, 1 problems found, 2 could not run.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Table

from orbitmq.errors import OrbitError, StoreError
from orbitmq.store.opening.parts import CHECKPOINT_NAME, log_folders
from orbitmq.store.readonly.readonly_store import ReadOnlyStore
from orbitmq.store.tools.accepting_loss import Loss
from orbitmq.store.tools.accepting_loss import accept_loss as accept_store_loss
from orbitmq.store.tools.findings import Finding
from orbitmq.store.tools.inspection import Inspection, QueueFacts
from orbitmq.store.tools.inspection import inspect as inspect_store
from orbitmq.store.tools.rebuilding import RebuildOptions, Rebuilt
from orbitmq.store.tools.rebuilding import rebuild as rebuild_store
from orbitmq.store.tools.verification import Verification
from orbitmq.store.tools.verification import verify as verify_store

EXIT_PROBLEMS = 1
EXIT_COULD_NOT_RUN = 2
# Problems shown in text; --json has more.
_SHOWN_MAX = 50

OnProgress = Callable[[int, int], None]

Folder = Annotated[
    Path, typer.Argument(metavar="DIR", help="The store directory (storePathRootDir).")
]
LogPath = Annotated[
    str,
    typer.Option(
        help="Folders of the log, separated by commas, if not DIR/commitlog (storePathCommitLog)."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document, for programs.")]
IndexSlots = Annotated[
    int | None,
    typer.Option(help="Slots of an index file (maxHashSlotNum), if not a quarter of its entries."),
]
DelayLevels = Annotated[
    str | None,
    typer.Option(help="The messageDelayLevel of the broker, if not the default."),
]


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    store = typer.Typer(
        help="Inspect a store directory, verify it, rebuild its queues and index, or accept "
        "the loss of damaged messages. "
        "Exit codes: 0 no problems, 1 problems found, 2 could not run.",
        no_args_is_help=True,
    )
    store.command("inspect")(inspect)
    store.command("verify")(verify)
    store.command("rebuild")(rebuild)
    store.command("accept-loss")(accept_loss)
    app.add_typer(store, name="store")


def inspect(
    folder: Folder,
    *,
    count: Annotated[
        bool, typer.Option("--count", help="Count records by topic; reads the whole log.")
    ] = False,
    log_path: LogPath = "",
    as_json: AsJson = False,
) -> None:
    """Show files, topics, queues and state; read-only, also while a broker runs."""
    with (
        _running(),
        _open(folder, log_path) as store,
        _progress("counting") as on_progress,
    ):
        found = inspect_store(store, with_counts=count, on_progress=on_progress)
    if as_json:
        _print_json(found)
    else:
        _show_inspection(found)


def _open(folder: Path, log_path: str) -> ReadOnlyStore:
    """Open a store read-only; raises if the folder does not hold one."""
    if folder.is_dir() and not any(
        path.exists() for path in (*log_folders(folder, log_path), folder / CHECKPOINT_NAME)
    ):
        stores = sorted(str(path.parent) for path in folder.glob("*/commitlog") if path.is_dir())
        raise StoreError(
            f"{folder} holds no store: it has neither a commit log nor a checkpoint",
            hint=f"it is a folder of stores; give one of them: {', '.join(stores)}"
            if stores
            else "give a broker's storePathRootDir, and --log-path if it sets storePathCommitLog",
        )
    return ReadOnlyStore(folder, log_path=log_path)


def verify(
    folder: Folder,
    *,
    log_path: LogPath = "",
    index_slots: IndexSlots = None,
    delay_levels: DelayLevels = None,
    as_json: AsJson = False,
) -> None:
    """Check every record, and that queues and index agree with the log; read-only."""
    with (
        _running(),
        _open(folder, log_path) as store,
        _progress("verifying") as on_progress,
    ):
        found = verify_store(
            store, delay_levels=delay_levels, index_slots=index_slots, on_progress=on_progress
        )
    advice = found.findings.advice(str(folder), is_clean=found.is_clean)
    if as_json:
        findings = found.findings
        _print_json(
            {
                "fine": found.is_fine,
                "start": found.start,
                "end": found.end,
                "records": found.records,
                "record_bytes": found.record_bytes,
                "queues": found.queues,
                "entries": found.entries,
                "keys": found.keys,
                "counts": {kind.value: count for kind, count in findings.counts.items()},
                "problems": findings.problems,
                "notes": findings.notes,
                "advice": advice,
            }
        )
    else:
        _show_verification(found, advice)
    if not found.is_fine:
        raise typer.Exit(EXIT_PROBLEMS)


def rebuild(
    folder: Folder,
    *,
    log_path: LogPath = "",
    queue_file_bytes: Annotated[
        int | None,
        typer.Option(help="Size of queue files (mappedFileSizeConsumeQueue), if none exists."),
    ] = None,
    index: Annotated[
        bool | None,
        typer.Option(
            "--index/--no-index", help="Whether to build a key index; by default, if there was one."
        ),
    ] = None,
    index_slots: IndexSlots = None,
    index_entries: Annotated[
        int | None, typer.Option(help="Entries of an index file (maxIndexNum), if none exists.")
    ] = None,
    delay_levels: DelayLevels = None,
    as_json: AsJson = False,
) -> None:
    """Rebuild consume queues and key index from the log; stop the broker first."""
    options = RebuildOptions(
        log_path=log_path,
        queue_file_bytes=queue_file_bytes,
        with_index=index,
        index_slots=index_slots,
        index_entries=index_entries,
        delay_levels=delay_levels,
    )
    with _running(), _progress("rebuilding") as on_progress:
        rebuilt = rebuild_store(folder, options, on_progress=on_progress)
    if as_json:
        _print_json(rebuilt)
    else:
        _show_rebuilt(rebuilt)


def accept_loss(
    folder: Folder,
    *,
    at: Annotated[int, typer.Option("--at", help="The offset in the log where the damage starts.")],
    yes: Annotated[
        bool, typer.Option("--yes", help="Accept the loss; without this, only show it.")
    ] = False,
    log_path: LogPath = "",
    as_json: AsJson = False,
) -> None:
    """Give up damaged messages so that the store opens again; stop the broker first."""
    with _running():
        loss = accept_store_loss(folder, at, log_path=log_path, confirmed=False)
    if not as_json:
        _show_loss(loss)
    if yes:
        with _running():
            loss = accept_store_loss(folder, at, log_path=log_path, confirmed=True)
    if as_json:
        _print_json({"accepted": yes, "loss": loss})
    elif yes:
        typer.echo(f"accepted; the old bytes are kept in {', '.join(loss.kept_in) or 'no file'}")
    else:
        typer.echo("nothing was changed; to accept the loss, add --yes")
    if not yes:
        raise typer.Exit(EXIT_PROBLEMS)


# --- running ----------------------------------------------------------------------------------


@contextmanager
def _running() -> Iterator[None]:
    """Exit with the code for "could not run" on an error."""
    try:
        yield
    except OrbitError as error:
        _could_not_run(str(error))
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        _could_not_run(f"{where}{error.strerror or error}")


def _could_not_run(reason: str) -> NoReturn:
    typer.secho(f"orbitmq: {reason}", fg=typer.colors.RED, err=True)
    raise typer.Exit(EXIT_COULD_NOT_RUN)


@contextmanager
def _progress(what: str) -> Iterator[OnProgress]:
    """A progress bar with rate and time left, on a terminal only."""
    if not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    with Progress(
        TextColumn(what),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


# --- showing ----------------------------------------------------------------------------------


def _print_json(content: object) -> None:
    typer.echo(json.dumps(content, default=_as_json, indent=2))


def _as_json(value: object) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.value
    raise TypeError(f"{type(value).__name__} has no JSON form")


def _time(store_ms: int) -> str:
    if store_ms <= 0:
        return "-"
    moment = datetime.datetime.fromtimestamp(store_ms / 1000, tz=datetime.UTC).astimezone()
    return moment.isoformat(sep=" ", timespec="milliseconds")


def _table(*columns: str, numbers: tuple[str, ...] = ()) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, justify="right" if column in numbers else "left", overflow="fold")
    return table


def _print(*tables: Table) -> None:
    # A pipe has no width, and programs read long lines more easily than wrapped ones.
    console = Console(width=None if sys.stdout.isatty() else 400, highlight=False)
    for table in tables:
        console.print(table)
        console.print()


def _show_inspection(found: Inspection) -> None:
    state = found.state
    facts = _table("store", found.root)
    for name, value in (
        ("last written by", state.written_by),
        ("state", _state_in_words(found)),
        ("log", f"{found.log_start} to {found.log_end} in files of {found.log_file_bytes} bytes"),
        ("messages stored", f"{_time(found.first_store_ms)} to {_time(found.last_store_ms)}"),
        ("watermark", _number(state.watermark)),
        ("progress: flushed", _number(state.flushed_mark)),
        ("progress: dispatched", _number(state.dispatched_mark)),
        ("checkpoint: log", _time(state.checkpoint_log_ms)),
        ("checkpoint: queues", _time(state.checkpoint_queues_ms)),
        ("checkpoint: index", _time(state.checkpoint_index_ms)),
    ):
        facts.add_row(name, value)
    for problem in (*found.unreadable, *(f"strange file {path}" for path in found.strange_files)):
        facts.add_row("problem", problem)
    for warning in found.warnings:
        facts.add_row("warning", warning)
    tables = [facts, _log_table(found), _queue_table(found.queues)]
    if found.memory_queues:
        tables.append(_memory_table(found))
    _print(*tables, _index_table(found))
    if found.counts is not None:
        counts = found.counts
        table = _table("topic", "queued messages", numbers=("queued messages",))
        for topic, number in sorted(counts.queued.items()):
            table.add_row(topic, str(number))
        table.add_row("(without queue entry)", str(counts.unqueued))
        table.add_row("(all)", str(counts.records))
        _print(table)


def _state_in_words(found: Inspection) -> str:
    state = found.state
    if state.is_clean:
        return "stopped cleanly"
    if state.locked_by is not None:
        return f"open in process {state.locked_by}"
    return f"open, or not stopped cleanly (abort says process {state.abort_pid or 'unknown'})"


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)


def _log_table(found: Inspection) -> Table:
    table = _table(
        "log file",
        "start",
        "bytes used",
        "on disk",
        "first stored",
        "modified",
        numbers=("start", "bytes used", "on disk"),
    )
    for file in found.log_files:
        table.add_row(
            file.path,
            str(file.first_offset),
            str(file.used_bytes),
            str(file.disk_bytes),
            _time(file.first_store_ms),
            _time(file.modified_ms),
        )
    return table


def _queue_table(queues: tuple[QueueFacts, ...]) -> Table:
    numbers = ("queue", "min offset", "max offset", "messages")
    table = _table("topic", *numbers, "first stored", "last stored", numbers=numbers)
    for queue in queues:
        table.add_row(
            queue.topic,
            str(queue.queue_id),
            str(queue.start),
            str(queue.end),
            str(queue.end - queue.start),
            _time(queue.first_store_ms),
            _time(queue.last_store_ms),
        )
    return table


def _memory_table(found: Inspection) -> Table:
    numbers = ("queue", "resumes at or below")
    table = _table("topic in memory", *numbers, numbers=numbers)
    for queue in found.memory_queues:
        table.add_row(queue.topic, str(queue.queue_id), str(queue.reserved_end))
    return table


def _index_table(found: Inspection) -> Table:
    table = _table(
        "index file",
        "keys",
        "start",
        "end",
        "first stored",
        "last stored",
        numbers=("keys", "start", "end"),
    )
    for file in found.index_files:
        table.add_row(
            file.path,
            str(file.keys),
            str(file.begin_offset),
            str(file.end_offset),
            _time(file.begin_ms),
            _time(file.end_ms),
        )
    return table


def _show_verification(found: Verification, advice: list[str]) -> None:
    typer.echo(
        f"{found.records} records of {found.record_bytes} bytes from {found.start} to {found.end}, "
        f"{found.entries} entries of {found.queues} queues, {found.keys} keys"
    )
    findings = found.findings
    for problem in findings.problems[:_SHOWN_MAX]:
        typer.secho(f"problem: {_problem_in_words(problem)}", fg=typer.colors.RED)
    for note in findings.notes:
        typer.echo(f"note: {note}")
    if found.is_fine:
        typer.secho("no problems found", fg=typer.colors.GREEN)
        return
    kinds = ", ".join(
        f"{count} {kind.value}"
        for kind, count in sorted(findings.counts.items(), key=lambda item: item[0].value)
    )
    typer.echo(f"total: {kinds}")
    for line in advice:
        typer.echo(f"what to do: {line}")


def _problem_in_words(problem: Finding) -> str:
    words = [problem.kind.value, problem.text]
    if problem.file:
        at = f" at byte {problem.position}" if problem.position >= 0 else ""
        words.append(f"in {problem.file}{at}")
    if problem.offset >= 0:
        words.append(f"offset {problem.offset}")
    if problem.topic:
        words.append(f"topic {problem.topic} queue {problem.queue_id}")
    if problem.first_number >= 0:
        last = f" to {problem.last_number}" if problem.last_number != problem.first_number else ""
        words.append(f"number {problem.first_number}{last}")
    return ", ".join(words)


def _show_rebuilt(rebuilt: Rebuilt) -> None:
    index = f"{rebuilt.keys} keys" if rebuilt.has_index else "no index"
    typer.echo(
        f"rebuilt from {rebuilt.records} records from {rebuilt.start} to {rebuilt.end}: "
        f"{rebuilt.entries} entries of {rebuilt.queues} queues, {index}"
    )
    for note in rebuilt.notes:
        typer.echo(f"note: {note}")


def _show_loss(loss: Loss) -> None:
    typer.echo(
        f"damage from {loss.start} to {loss.end}, {loss.end - loss.start} bytes in "
        f"{', '.join(loss.files)}: {loss.reason}"
    )
    typer.echo(f"lost: {loss.messages} messages that queues know of")
    for lost in loss.queues:
        last = f" to {lost.last}" if lost.last != lost.first else ""
        typer.echo(f"lost: topic {lost.topic} queue {lost.queue_id}, number {lost.first}{last}")
    if loss.other_bytes > 0:
        typer.echo(f"lost: {loss.other_bytes} bytes that no queue knows of")
    if loss.new_end is not None:
        typer.echo(f"no good record follows: the log will end at {loss.new_end}")
    for note in loss.notes:
        typer.echo(f"note: {note}")
