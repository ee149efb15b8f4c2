"""Answers of queries as they are printed."""

from __future__ import annotations

import json

import pyarrow as pa

from orbitmq.cli.statements.answers import Output, printed, summary
from orbitmq.pipelines.queries.execution import Answer

ROWS = pa.table(
    {
        "tag_name": ["paid", None],
        "n": pa.array([200, 1], pa.int64()),
        "body": pa.array([b"[bold]two\nlines", b"\xff"], pa.binary()),
    }
)


def lines(rows: pa.Table, output: Output, width: int = 0) -> list[str]:
    return "\n".join(printed(Answer(rows), output, width)).split("\n")


def test_a_table_keeps_each_row_on_one_line() -> None:
    assert lines(ROWS, Output.TABLE) == [
        "tag_name    n  body",
        r"paid      200  [bold]two\nlines",
        "NULL        1  base64:/w==",
    ]


def test_a_row_that_does_not_fit_the_terminal_has_a_line_for_each_value() -> None:
    assert lines(ROWS, Output.TABLE, width=20)[:4] == [
        "tag_name  paid",
        "n         200",
        r"body      [bold]two\nlines",
        "",
    ]


def test_json_is_a_line_for_each_row() -> None:
    assert [json.loads(line) for line in lines(ROWS, Output.JSON)] == [
        {"tag_name": "paid", "n": 200, "body": "[bold]two\nlines"},
        {"tag_name": None, "n": 1, "body": {"base64": "/w=="}},
    ]


def test_csv_has_the_names_first() -> None:
    assert "\n".join(lines(ROWS, Output.CSV)) == (
        'tag_name,n,body\npaid,200,"[bold]two\nlines"\n,1,base64:/w=='
    )


def test_a_plan_keeps_its_lines() -> None:
    assert lines(pa.table({"plan": ["a\n+- b"]}), Output.TABLE) == ["a", "+- b"]


def test_an_answer_that_is_cut_says_so() -> None:
    assert summary(Answer(ROWS), 1234) == "2 rows (1.23 s)"
    assert summary(Answer(ROWS, has_more=True), 5).startswith("the first 2 rows; there are more")
