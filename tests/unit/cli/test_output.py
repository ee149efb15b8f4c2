"""What commands print, on terminals of any width and in pipes."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console
from rich.table import Table
from rich.text import Text

from orbitmq.cli.output import (
    layout_for,
    show_json_line,
    show_one,
    show_rows,
    time_text,
)

ID = "C0000202572FD14C24DE4AE5F4D3B3DA"
ROWS = [
    {"topic": "orders-of-the-northern-shops", "message_id": ID, "lag": 7, "locked": True},
    {"topic": "orders", "message_id": ID[::-1], "lag": 12345, "locked": None},
]


def shown(width: int) -> list[str]:
    """What a terminal of that width shows."""
    screen = io.StringIO()
    Console(file=screen, width=width, soft_wrap=True).print(layout_for(ROWS, width))
    return [line.rstrip() for line in screen.getvalue().splitlines()]


def test_a_table_is_shown_where_it_fits() -> None:
    assert isinstance(layout_for(ROWS, 80), Table)

    header, first, second = shown(80)

    assert header.split() == ["topic", "message", "id", "lag", "locked"]
    assert first.split() == ["orders-of-the-northern-shops", ID, "7", "yes"]
    assert second.split() == ["orders", ID[::-1], "12345", "-"]
    # Numbers stand to the right.
    assert first.index("7  yes") == second.index("12345") + 4


@pytest.mark.parametrize("width", [20, 40, 76])
def test_a_narrow_terminal_gets_a_line_per_value_with_names_and_ids_whole(width: int) -> None:
    assert isinstance(layout_for(ROWS, width), Text)

    lines = shown(width)

    assert lines[0] == "topic       orders-of-the-northern-shops"
    assert lines[1] == f"message_id  {ID}"
    assert lines[4] == ""
    assert lines[6] == f"message_id  {ID[::-1]}"


def test_wide_letters_count_twice() -> None:
    row = {"topic": "訂單" * 10, "queue": 1}

    assert isinstance(layout_for([row], 47), Table)
    assert isinstance(layout_for([row], 46), Text)


def test_a_pipe_gets_a_row_a_line_however_long(capsys: pytest.CaptureFixture[str]) -> None:
    long = {f"column_{number}": "x" * 100 for number in range(20)}

    show_rows([long, long], as_json=False)

    assert len(capsys.readouterr().out.splitlines()) == 3


def test_programs_get_json(capsys: pytest.CaptureFixture[str]) -> None:
    show_rows(ROWS, as_json=True)
    assert json.loads(capsys.readouterr().out) == ROWS
    show_rows([], as_json=True)
    assert json.loads(capsys.readouterr().out) == []
    show_one(ROWS[0], as_json=True)
    assert json.loads(capsys.readouterr().out) == ROWS[0]
    show_json_line(ROWS[0])
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line) == ROWS[0]


def test_no_rows_are_reported_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    show_rows([], as_json=False, empty="there is no group")

    assert capsys.readouterr().out == "there is no group\n"


def test_values_are_shown_as_they_are_whatever_is_in_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    row = {"topic": "[/red] [bold]x[/bold]", "body": "a\x1b[2Jb\nc\x9b"}

    show_rows([row], as_json=False)
    _, line = capsys.readouterr().out.splitlines()
    show_one(row, as_json=False)
    topic, body = capsys.readouterr().out.splitlines()

    assert line.startswith("[/red] [bold]x[/bold]")
    assert line.rstrip().endswith(r"a\x1b[2Jb\nc\x9b")
    assert topic.endswith("[/red] [bold]x[/bold]")
    assert body.endswith(r"a\x1b[2Jb\nc\x9b")


def test_a_time_that_no_calendar_has_is_shown_as_its_number() -> None:
    assert time_text(2**62) == str(2**62)
    assert time_text(0) == ""
