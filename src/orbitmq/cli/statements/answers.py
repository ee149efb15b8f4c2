"""Answers of queries as they are printed: tables for people, JSON and CSV."""

from __future__ import annotations

import io
import json
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from orbitmq.cli.output import PIPE_COLUMNS, counted, escaped
from orbitmq.pipelines.queries.cells import column_names, csv_line, json_rows, text_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from orbitmq.pipelines.queries.execution import Answer

_COLUMN_GAP: Final = 2


class Output(StrEnum):
    """How an answer is printed."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


def printed(answer: Answer, output: Output, width: int) -> Iterator[str]:
    """The lines of an answer; `width` is that of the terminal, 0 without one."""
    if output is Output.JSON:
        for row in json_rows(answer.rows):
            yield json.dumps(row, ensure_ascii=False, separators=(",", ":"))
    elif output is Output.CSV:
        yield csv_line(column_names(answer.rows))
        yield from map(csv_line, text_rows(answer.rows))
    else:
        yield _table(answer.rows, width or PIPE_COLUMNS)


def summary(answer: Answer, took_ms: float) -> str:
    """How many rows there are, and how long that took."""
    count = counted(answer.rows.num_rows, "row")
    if answer.has_more:
        count = f"the first {count}; there are more, which --limit, or LIMIT in the query, shows"
    return f"{count} ({took_ms / 1000:.2f} s)"


def _table(rows: pa.Table, width: int) -> str:
    names = column_names(rows)
    cells = [["NULL" if cell is None else escaped(cell) for cell in row] for row in text_rows(rows)]
    widths = [max(map(cell_len, column)) for column in zip(names, *cells, strict=True)]
    if names == ["plan"] and len(cells) == 1:
        # What EXPLAIN says has lines of its own.
        (text,) = next(text_rows(rows))
        return "\n".join(map(escaped, (text or "").splitlines()))
    if sum(widths) + _COLUMN_GAP * (len(names) - 1) > width:
        # Values are never cut or wrapped, since users copy them.
        longest = max(map(len, names))
        blocks = [
            "\n".join(
                f"{name.ljust(longest)}  {cell}" for name, cell in zip(names, row, strict=True)
            )
            for row in cells
        ]
        return "\n\n".join(blocks)
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name, kind in zip(names, rows.schema.types, strict=True):
        is_number = str(kind).startswith(("int", "float", "double", "decimal"))
        table.add_column(Text(name), justify="right" if is_number else "left", no_wrap=True)
    for row in cells:
        table.add_row(*map(Text, row))
    return _rendered(table, width)


def _rendered(table: Table, width: int) -> str:
    made = io.StringIO()
    Console(file=made, width=width, no_color=True).print(table)
    return "\n".join(line.rstrip() for line in made.getvalue().splitlines())
