"""What commands print: tables for people, JSON for programs."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Final

import typer
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Row = Mapping[str, object]

PIPE_COLUMNS: Final = 10_000
_COLUMN_GAP: Final = 2
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def show_rows(rows: Sequence[Row], *, as_json: bool, empty: str = "nothing found") -> None:
    """Print rows with the same fields: a table, or a JSON list of objects."""
    if as_json:
        show_json(list(rows))
    elif not rows:
        typer.secho(empty, dim=True)
    else:
        console = Console(soft_wrap=True)
        if not console.is_terminal:
            # A pipe or a file has no width: keep each row on one line, for grep and awk.
            console.width = PIPE_COLUMNS
        console.print(layout_for(rows, console.width))


def show_one(row: Row, *, as_json: bool) -> None:
    """Print one row: a line per field, or a JSON object."""
    if as_json:
        show_json(dict(row))
        return
    typer.echo(_as_lines(row))


def show_each(found: Mapping[str, Mapping[str, str]], *, as_json: bool) -> None:
    """Print the values of each server; a single server without its name."""
    if len(found) == 1:
        show_one(dict(sorted(next(iter(found.values())).items())), as_json=as_json)
    elif as_json:
        show_json({name: dict(values) for name, values in found.items()})
    else:
        for name, values in found.items():
            typer.secho(name, bold=True)
            show_one(dict(sorted(values.items())), as_json=False)


def show_json(content: object) -> None:
    """Print JSON."""
    typer.echo(json.dumps(content, ensure_ascii=False, indent=2, default=str))


def show_json_line(content: object) -> None:
    """Print JSON on one line, for continuous output."""
    typer.echo(json.dumps(content, ensure_ascii=False, separators=(",", ":"), default=str))


def escaped(text: str) -> str:
    """Escape control characters as Python does: one line that is safe for a terminal."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def layout_for(rows: Sequence[Row], width: int) -> Table | Text:
    """Lay rows out for a terminal: as a table if it fits, else a line per value.

    Names and ids are never cut or wrapped, since users copy them.
    """
    columns = [[_title(name), *(_text(row[name]) for row in rows)] for name in rows[0]]
    needed = sum(max(map(cell_len, cells)) + _COLUMN_GAP for cells in columns) - _COLUMN_GAP
    if needed <= width:
        return as_table(rows)
    return Text("\n\n".join(map(_as_lines, rows)), no_wrap=True, overflow="ignore")


def _as_lines(row: Row) -> str:
    width = max(map(len, row), default=0)
    return "\n".join(f"{name.ljust(width)}  {_text(value)}" for name, value in row.items())


def _title(name: str) -> str:
    return name.replace("_", " ")


def as_table(rows: Sequence[Row]) -> Table:
    """Make a table of rows; numbers are right-aligned."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name, value in rows[0].items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        table.add_column(_title(name), justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        # As `Text`, since rich reads brackets as markup.
        table.add_row(*(Text(_text(value)) for value in row.values()))
    return table


def counted(number: int, noun: str) -> str:
    """A number of things, in the singular for one; for nouns whose plural ends in s."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def seconds(span_ms: int | None) -> float | None:
    """A span in seconds, with tenths; None if there is none."""
    return None if span_ms is None else round(span_ms / 1000, 1)


def time_text(timestamp_ms: int) -> str:
    """A time in the local zone; empty if there is none, the number if it is out of range."""
    if timestamp_ms <= 0:
        return ""
    try:
        moment = datetime.datetime.fromtimestamp(timestamp_ms / 1000).astimezone()
    except (ValueError, OverflowError, OSError):
        # Clients set it, possibly to nonsense.
        return str(timestamp_ms)
    return moment.isoformat(sep=" ", timespec="milliseconds")


def _text(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.2f}"
    if isinstance(value, list | tuple):
        return escaped(", ".join(map(str, value)))
    return escaped(str(value))
