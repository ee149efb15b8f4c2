"""What commands print: tables for people, JSON for programs."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.table import Table

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Row = Mapping[str, object]

PIPE_COLUMNS: Final = 10_000


def show_rows(rows: Sequence[Row], *, as_json: bool, empty: str = "nothing found") -> None:
    """Print rows with the same names: a table, or a JSON list of objects."""
    if as_json:
        show_json(list(rows))
    elif not rows:
        typer.secho(empty, dim=True)
    else:
        console = Console(soft_wrap=True)
        if not console.is_terminal:
            # A pipe or a file has no width: a row stays on one line, for grep and awk.
            console.width = PIPE_COLUMNS
        console.print(as_table(rows))


def show_one(row: Row, *, as_json: bool) -> None:
    """Print one thing: a line per name, or a JSON object."""
    if as_json:
        show_json(dict(row))
        return
    width = max(map(len, row), default=0)
    for name, value in row.items():
        typer.echo(f"{name.ljust(width)}  {_text(value)}")


def show_json(content: object) -> None:
    """Print JSON."""
    typer.echo(json.dumps(content, ensure_ascii=False, indent=2, default=str))


def as_table(rows: Sequence[Row]) -> Table:
    """Make a table of rows; numbers stand to the right."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name, value in rows[0].items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        table.add_column(
            name.replace("_", " "), justify="right" if is_number else "left", overflow="fold"
        )
    for row in rows:
        table.add_row(*(_text(value) for value in row.values()))
    return table


def time_text(timestamp_ms: int) -> str:
    """A time of day in the zone of this machine; empty for none."""
    if timestamp_ms <= 0:
        return ""
    moment = datetime.datetime.fromtimestamp(timestamp_ms / 1000).astimezone()
    return moment.isoformat(sep=" ", timespec="milliseconds")


def _text(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.2f}"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return str(value)
