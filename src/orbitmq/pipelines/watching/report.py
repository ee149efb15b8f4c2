"""The report of a run: one HTML file that needs no network."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from html import escape
from pathlib import Path
from typing import Final

from orbitmq.pipelines.watching.amounts import bytes_text, count_text, span_text
from orbitmq.pipelines.watching.charts import COLORS, Chart, Line, clock_text
from orbitmq.pipelines.watching.events import QueryFailed
from orbitmq.pipelines.watching.report_style import STYLE
from orbitmq.pipelines.watching.run_record import QueryRecord, RunRecord
from orbitmq.pipelines.watching.timeline import Timeline
from orbitmq.version import __version__

_Points = Callable[[Timeline], list[tuple[int, float]]]
_QUERIES_MAX: Final = 200
_TITLES: Final = ("rows", "batches", "mean batch", "longest", "lag", "behind", "quarantined",
                  "too late", "state", "restarts")  # fmt: skip


def write_report(record: RunRecord, file: Path) -> None:
    """Write the report of a run, as it is now; a file of that name is replaced as a whole."""
    text = report_of(record)
    written = file.with_name(f".{file.name}.new")
    written.write_text(text, encoding="utf-8")
    written.replace(file)


def report_of(record: RunRecord) -> str:
    """The report of a run as HTML."""
    with record.lock:
        now_ms = record.ended_ms or record.clock.now_ms()
        name = escape(record.pipeline)
        queries = list(record.queries.values())[:_QUERIES_MAX]
        return "".join(
            [
                '<!doctype html><html lang="en"><head><meta charset="utf-8">',
                '<meta name="viewport" content="width=device-width, initial-scale=1">',
                '<meta http-equiv="Content-Security-Policy" '
                "content=\"default-src 'none'; style-src 'unsafe-inline'\">",
                f"<title>{name}: pipeline report</title><style>{STYLE}</style></head><body><main>",
                _head(record, now_ms),
                _summary(record, queries, now_ms),
                _troubles(record),
                _queries(queries, now_ms),
                _charts(queries, record.began_ms, now_ms),
                _quarantine(queries),
                f"<footer>OrbitMQ {escape(__version__)}. Times are those of the machine that ran "
                "it. A run that is longer than 8 minutes is shown in wider steps.</footer>",
                "</main></body></html>\n",
            ]
        )


def _head(record: RunRecord, now_ms: int) -> str:
    outcome = record.outcome or ("stopping" if record.is_stopping else "running")
    ran = span_text((now_ms - record.began_ms) / 1000)
    return (
        f"<header><h1>{escape(record.pipeline)} "
        f'<span class="outcome {outcome}">{outcome}</span></h1>'
        f"<p>{clock_text(record.began_ms)} to {clock_text(now_ms)}, {ran}</p></header>"
    )


def _summary(record: RunRecord, queries: Iterable[QueryRecord], now_ms: int) -> str:
    queries = list(queries)
    rows = sum(one.rows for one in queries)
    took_s = max((now_ms - record.began_ms) / 1000, 1)
    lags = [one.lag for one in queries if one.lag is not None]
    cards = {
        "rows read": count_text(rows),
        "rows a second": count_text(rows / took_s),
        "batches": count_text(sum(one.batches for one in queries)),
        "lag at the end" if record.outcome else "lag now": count_text(max(lags)) if lags else "-",
        "in quarantine": count_text(sum(one.rejected.total() for one in queries)),
        "too late": count_text(sum(one.late_rows for one in queries)),
    }
    shown = (f"<div><b>{value}</b><span>{name}</span></div>" for name, value in cards.items())
    return f'<section class="cards">{"".join(shown)}</section>'


def _troubles(record: RunRecord) -> str:
    if not record.troubles:
        return ""
    items = []
    for one in record.troubles:
        what = "failed" if isinstance(one, QueryFailed) else "started again"
        items.append(
            f"<li><b>{escape(one.query)}</b> {what} at {clock_text(one.at_ms)}"
            f"<pre>{escape(one.reason)}</pre></li>"
        )
    return f'<section class="troubles"><h2>Errors</h2><ul>{"".join(items)}</ul></section>'


def _queries(queries: list[QueryRecord], now_ms: int) -> str:
    cells = [_cells(one) for one in queries]
    titles = [title for title in _TITLES if any(one[title] for one in cells)]
    head = "".join(f"<th>{title}</th>" for title in ("query", *titles))
    rows = []
    for number, one in enumerate(queries):
        shown = "".join(f"<td>{escape(cells[number][title])}</td>" for title in titles)
        key = f'<i class="key c{number % COLORS}"></i>'
        mark = ' class="failed"' if one.failure else ""
        rows.append(f"<tr{mark}><th>{key}{escape(one.name)}</th>{shown}</tr>")
    targets = "".join(
        f"<li><b>{escape(one.name)}</b> to {escape(one.target)}</li>" for one in queries
    )
    return (
        "<section><h2>Queries</h2>"
        f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody>'
        f'</table></div><ul class="targets">{targets}</ul><p>As of {clock_text(now_ms)}. Rows are '
        "counted as a query reads them from its topics.</p></section>"
    )


def _cells(query: QueryRecord) -> dict[str, str]:
    """By the title of its column; a column that is empty everywhere is left out."""
    last = query.last
    longest_ms = max((step.took_ms for step in query.timeline.steps), default=0)
    values = (
        count_text(query.rows),
        count_text(query.batches),
        span_text(query.took_ms / 1000 / query.batches) if query.batches else "-",
        span_text(longest_ms / 1000) if query.batches else "-",
        "-" if query.lag is None else count_text(query.lag),
        "-" if query.behind_s is None else span_text(query.behind_s),
        count_text(query.rejected.total()) if query.rejected else "",
        count_text(query.late_rows) if query.late_rows else "",
        f"{count_text(last.state_rows)} rows, {bytes_text(last.state_bytes)}"
        if last is not None and last.state_bytes
        else "",
        count_text(query.restarts) if query.restarts else "",
    )
    return dict(zip(_TITLES, values, strict=True))


def _charts(queries: list[QueryRecord], began_ms: int, now_ms: int) -> str:
    figures: tuple[tuple[str, str, Callable[[float], str], _Points], ...] = (
        ("Throughput", "rows a second", count_text, _throughput),
        ("Lag", "messages that are stored and not processed", count_text, _lag),
        ("Behind", "age of the oldest message that is not processed", span_text, _behind),
        ("Latency", "how long batches took", span_text, _duration),
    )
    shown = []
    for title, what, text_of, points in figures:
        lines = [
            Line(name=one.name, number=number, points=points(one.timeline))
            for number, one in enumerate(queries)
        ]
        chart = Chart(title=title, text_of=text_of, lines=lines, began_ms=began_ms, ended_ms=now_ms)
        shown.append(
            f"<figure><figcaption><b>{title}</b> {what}</figcaption>{chart.svg()}</figure>"
        )
    keys = "".join(
        f'<span><i class="key c{number % COLORS}"></i>{escape(one.name)}</span>'
        for number, one in enumerate(queries)
    )
    return (
        f'<section><h2>Over time</h2><p class="keys">{keys}</p>'
        f'<div class="charts">{"".join(shown)}</div></section>'
    )


def _throughput(timeline: Timeline) -> list[tuple[int, float]]:
    """Rows of each batch, over the time since the one before."""
    points, before_ms = [], timeline.began_ms
    for step in timeline.steps:
        if step.batches:
            since_ms = max(step.at_ms - before_ms, timeline.step_ms)
            points.append((step.at_ms, step.rows * 1000 / since_ms))
            before_ms = step.at_ms
    return points


def _lag(timeline: Timeline) -> list[tuple[int, float]]:
    return [(step.at_ms, float(step.lag)) for step in timeline.steps if step.lag is not None]


def _behind(timeline: Timeline) -> list[tuple[int, float]]:
    return [(step.at_ms, step.behind_s) for step in timeline.steps if step.behind_s is not None]


def _duration(timeline: Timeline) -> list[tuple[int, float]]:
    return [(step.at_ms, step.took_ms / 1000) for step in timeline.steps if step.batches]


def _quarantine(queries: Iterable[QueryRecord]) -> str:
    counts = [
        (one.name, reason, count)
        for one in queries
        for reason, count in sorted(one.rejected.items(), key=lambda item: -item[1])
    ]
    if not counts:
        return ""
    most = max(count for *_, count in counts)
    rows = "".join(
        f"<tr><th>{escape(name)}</th><td>{escape(reason)}</td><td>{count_text(count)}</td>"
        f'<td class="bar"><i style="width:{count * 100 / most:.1f}%"></i></td></tr>'
        for name, reason, count in counts
    )
    return (
        '<section class="quarantine"><h2>Quarantine</h2><div class="wide"><table><thead><tr>'
        "<th>of</th><th>reason</th><th>rows</th><th></th></tr></thead>"
        f"<tbody>{rows}</tbody></table></div></section>"
    )
