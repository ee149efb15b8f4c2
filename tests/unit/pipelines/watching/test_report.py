"""The HTML report of a run, in a browser."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from orbitmq.pipelines.watching.charts import Chart, Line, time_ticks
from orbitmq.pipelines.watching.events import QueryFailed, QueryRestarted, RunEnded
from orbitmq.pipelines.watching.report import report_of, write_report
from orbitmq.pipelines.watching.run_record import RunRecord
from tests.unit.pipelines.watching.runs import BEGAN_MS, QUARANTINE, batch, lag, started_run

BROWSER_TIMEOUT_S = 120
ODD = '<script>alert("x")</script> & more'
MINUTE_MS = 60_000


def a_run() -> RunRecord:
    """A minute of two queries, then a failure."""
    record = started_run("table", QUARANTINE)
    for number in range(30):
        after_ms = number * 2000
        record.note(batch(number=number, after_ms=after_ms, rows=100 + number, state_rows=7))
        rejected = {"cannot be decoded": 1, ODD: 2}
        record.note(batch(QUARANTINE, number, after_ms=after_ms, rows=100, rejected=rejected))
        record.note(lag(after_ms=after_ms, messages=number))
    record.note(QueryRestarted(at_ms=BEGAN_MS + 5000, query="table", reason="it came up late"))
    record.note(QueryFailed(at_ms=BEGAN_MS + MINUTE_MS, query="table", reason=ODD))
    record.note(RunEnded(at_ms=BEGAN_MS + MINUTE_MS, outcome="failed", rows=record.rows()))
    return record


@pytest.fixture
def chromium() -> str:
    found = shutil.which("chromium")
    if found is None:
        pytest.skip("Chromium is missing: the report is not looked at in a browser")
    return found


def opened(chromium: str, page: Path, *options: str) -> tuple[str, list[str]]:
    """A page as the browser has it, and what its console says."""
    done = subprocess.run(
        [
            chromium,
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            f"--user-data-dir={page.parent / 'profile'}",
            "--enable-logging=stderr",
            *options,
            page.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=BROWSER_TIMEOUT_S,
        check=True,
    )
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


def test_a_browser_shows_the_report_without_errors_and_without_a_network(
    chromium: str, tmp_path: Path
) -> None:
    page, picture = tmp_path / "report.html", tmp_path / "report.png"
    write_report(a_run(), page)
    assert list(tmp_path.iterdir()) == [page]

    shown, console = opened(chromium, page, "--dump-dom")
    _, more = opened(chromium, page, "--window-size=400,900", f"--screenshot={picture}")

    assert console + more == []
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert re.findall(r'<svg [^>]*aria-label="(\w+)"', shown) == [
        "Throughput", "Lag", "Behind", "Latency",
    ]  # fmt: skip
    # A point for each batch, with its value; two queries.
    throughput = shown[shown.index('aria-label="Throughput"') : shown.index('aria-label="Lag"')]
    assert throughput.count("<polyline") == 2
    assert throughput.count("<title>") == 60
    assert "<title>table: 60, " in throughput
    assert 'class="outcome failed">failed' in shown
    assert "<td>cannot be decoded</td><td>30</td>" in shown
    assert "it came up late" in shown
    assert "http" not in shown.replace("http-equiv", "")


def test_names_and_reasons_are_text_whatever_they_have_in_them() -> None:
    report = report_of(a_run())

    assert "<script" not in report
    assert report.count("&lt;script&gt;alert(&quot;x&quot;)&lt;/script&gt; &amp; more") == 2


def test_a_report_of_a_run_at_work_says_so() -> None:
    report = report_of(started_run("table"))

    assert 'class="outcome running">running' in report
    assert report.count("nothing measured") == 4


def test_axes_have_round_numbers_and_moments() -> None:
    points = [(BEGAN_MS, 3.0), (BEGAN_MS + 7 * MINUTE_MS, 3400.0)]
    line = Line(name="table", number=0, points=points)

    svg = Chart(
        title="Lag",
        text_of="{:.0f}".format,
        lines=[line],
        began_ms=BEGAN_MS,
        ended_ms=BEGAN_MS + 7 * MINUTE_MS,
    ).svg()
    moments = [at_ms for at_ms, _ in time_ticks(BEGAN_MS, BEGAN_MS + 7 * MINUTE_MS)]

    assert re.findall(r'text-anchor="end">(\d+)</text>', svg) == [
        "0",
        "1000",
        "2000",
        "3000",
        "4000",
    ]
    assert len(moments) in {3, 4}
    assert {at_ms % (2 * MINUTE_MS) for at_ms in moments} == {0}
    for days in (0, 1, 9, 90, 4000):
        assert 1 <= len(time_ticks(BEGAN_MS, BEGAN_MS + days * 86_400_000 + 20_000)) <= 12
