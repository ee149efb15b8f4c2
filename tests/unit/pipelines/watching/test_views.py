"""Views of a run: lines, JSON lines, the screen, metrics."""

from __future__ import annotations

import io
import json
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from orbitmq.errors import SettingsError
from orbitmq.pipelines.watching.events import (
    Event,
    QueryFailed,
    QueryRestarted,
    QueryStarted,
    RunEnded,
    RunStarted,
    Stopping,
)
from orbitmq.pipelines.watching.events_file import EventsFile
from orbitmq.pipelines.watching.lines import Lines
from orbitmq.pipelines.watching.metrics import serving
from orbitmq.pipelines.watching.run_record import RunRecord
from orbitmq.pipelines.watching.screen import live_screen, screen_of
from tests.integration.docs.pages import ROOT
from tests.unit.pipelines.watching.runs import BEGAN_MS, QUARANTINE, batch, lag, started_run


def watched(listener: Callable[[Event], None] | None = None) -> RunRecord:
    """A run that has seen everything; not yet over."""
    record = started_run("table", QUARANTINE)
    if listener is not None:
        record.listeners.append(listener)
    record.note(batch(after_ms=1000, rows=1200, took_ms=250, lag=5, state_rows=40, late_rows=2))
    record.note(batch(QUARANTINE, after_ms=1100, rows=1200, rejected={"not paid": 3}))
    record.note(batch(number=1, after_ms=1200, rows=0, state_rows=40))
    record.note(lag(after_ms=2000))
    record.note(QueryRestarted(at_ms=BEGAN_MS + 2500, query="table", reason="it came up late"))
    record.note(Stopping(at_ms=BEGAN_MS + 3000))
    return record


def test_lines_say_what_people_care_about() -> None:
    shown: list[str] = []

    record = watched(Lines(shown.append))
    record.note(RunEnded(at_ms=BEGAN_MS + 4000, outcome="stopped", rows=record.rows()))

    assert shown == [
        "table: batch 0, 1200 rows in 250 ms, 4800/s, lag 5, state 40 rows 4 kB, 2 too late",
        "quarantine of orders: batch 0, 1200 rows in 500 ms, 2400/s, 3 not paid",
        "table: lag 7, 1.5 s behind",
        "table: starts again: it came up late",
        "stopping after the batches at hand; once more ends at once",
        "table: 1200 rows in this run",
        "quarantine of orders: 1200 rows in this run",
    ]


def test_every_event_is_a_line_of_json_with_the_fields_of_the_page() -> None:
    written = io.BytesIO()
    written.close = lambda: None  # type: ignore[method-assign]  # to be read afterwards

    with EventsFile(written) as events:
        record = watched(events)
        record.note(QueryFailed(at_ms=BEGAN_MS, query="table", reason="no space"))
        record.note(RunEnded(at_ms=BEGAN_MS, outcome="failed", rows={"table": 1200}))

    lines = [json.loads(line) for line in written.getvalue().splitlines()]
    assert [line["event"] for line in lines] == [
        "batch", "batch", "batch", "lag", "query_restarted", "stopping", "query_failed", "run_ended",
    ]  # fmt: skip
    assert lines[0]["query"] == "table"
    assert lines[1]["rejected"] == {"not paid": 3}
    assert lines[3]["queues"] == {"orders/broker-a/0": 7}
    page = (ROOT / "docs" / "pipelines.md").read_text()
    for line in lines:
        for field in line:
            assert f"`{field}`" in page, field
        assert f"`{line['event']}`" in page


def test_events_end_where_the_disk_is_full_and_the_run_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with Path("/dev/full").open("ab") as full, EventsFile(full) as events:
        record = watched(events)

    assert record.queries["table"].rows == 1200
    assert [one.getMessage()[:15] for one in caplog.records] == ["events end here"]


def test_the_screen_has_a_row_for_each_query_and_fits_a_terminal() -> None:
    console = Console(width=100, file=io.StringIO(), record=True)

    console.print(screen_of(watched()))

    head, titles, table, quarantine, trouble = console.export_text().splitlines()
    assert head.split("  ") == ["shop", "running, 0 s", "stopping after the batches at hand; "
                                "once more ends at once"]  # fmt: skip
    assert titles.split() == [
        "query", "rows", "rows/s", "lag", "behind", "batch", "took", "quarantined", "state",
    ]  # fmt: skip
    assert table.split() == [
        "table", "1,200", "1,200", "7", "1.5", "s", "1", "500", "ms", "40,", "4", "kB",
    ]  # fmt: skip
    assert quarantine.split()[-3:] == ["500", "ms", "3"]
    assert trouble.startswith("table: it came up late")


def test_the_live_screen_shows_what_happens_and_leaves_its_last_state() -> None:
    written = io.StringIO()
    console = Console(width=100, file=written, force_terminal=True, color_system=None)
    record = RunRecord()

    with live_screen(record, console):
        record.note(RunStarted(at_ms=BEGAN_MS, pipeline="shop", queries={"table": "files t"}))
        record.note(QueryStarted(at_ms=BEGAN_MS, query="table"))
        record.note(batch(rows=4321))
        record.note(RunEnded(at_ms=BEGAN_MS + 61_000, outcome="done", rows={"table": 4321}))

    first, _, last = written.getvalue().partition("shop  ")
    assert "Spark starts" in first
    assert last.startswith("done, 1 min 1 s")
    assert "4,321" in last


def test_metrics_are_served_under_the_names_of_the_page() -> None:
    with (
        serving(watched(), host="127.0.0.1", port=0) as port,
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as reply,
    ):
        text = reply.read().decode()

    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    table = '{pipeline="shop",query="table"}'
    assert values[f"orbitmq_pipeline_rows_total{table}"] == "1200.0"
    assert values[f"orbitmq_pipeline_lag_messages{table}"] == "7.0"
    assert values[f"orbitmq_pipeline_behind_seconds{table}"] == "1.5"
    assert values[f"orbitmq_pipeline_query_up{table}"] == "1.0"
    assert (
        values[
            "orbitmq_pipeline_quarantined_rows_total"
            '{pipeline="shop",query="quarantine of orders",reason="not paid"}'
        ]
        == "3.0"
    )
    page = (ROOT / "docs" / "metrics.md").read_text()
    for name in {name.partition("{")[0] for name in values}:
        assert f"`{name}`" in page or name.endswith("_created"), name


def test_a_port_that_is_taken_is_named_before_anything_starts() -> None:
    record = watched()

    with (
        serving(record, host="127.0.0.1", port=0) as port,
        pytest.raises(SettingsError, match=f"127.0.0.1:{port}.*--metrics-port"),
        serving(record, host="127.0.0.1", port=port),
    ):
        pass
