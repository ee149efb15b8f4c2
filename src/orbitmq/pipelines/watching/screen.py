"""The live screen of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from orbitmq.pipelines.watching.amounts import bytes_text, count_text, span_text
from orbitmq.pipelines.watching.lines import STOPPING
from orbitmq.pipelines.watching.run_record import QueryRecord, RunRecord

_LOOKS_A_SECOND: Final = 2
_NUMBERS: Final = ("rows", "rows/s", "lag", "behind", "batch", "took", "quarantined", "state")
_TROUBLES_SHOWN: Final = 5
_NAME_WIDTH: Final = 12
_QUERIES_SHOWN: Final = 40


@dataclass(frozen=True, slots=True)
class _Shown:
    """Makes the screen anew each time that rich draws it."""

    record: RunRecord

    def __rich__(self) -> RenderableType:
        return screen_of(self.record)


def live_screen(record: RunRecord, console: Console) -> Live:
    """The screen, from entering it until leaving it; its last state stays."""
    return Live(_Shown(record), console=console, refresh_per_second=_LOOKS_A_SECOND)


def screen_of(record: RunRecord) -> RenderableType:
    """What the screen shows now."""
    with record.lock:
        now_ms = record.ended_ms or record.clock.now_ms()
        table = Table(box=None, header_style="bold", pad_edge=False)
        table.add_column("query", overflow="fold", min_width=_NAME_WIDTH)
        for name in _NUMBERS:
            table.add_column(name, justify="right", no_wrap=True)
        for query in list(record.queries.values())[:_QUERIES_SHOWN]:
            table.add_row(Text(query.name, style=_style(query)), *_figures(query, now_ms))
        more = len(record.queries) - _QUERIES_SHOWN
        rest = [Text(f"… and {more} more queries", style="dim")] if more > 0 else []
        troubles = [
            Text(f"{one.query}: {one.reason}", style="red", overflow="ellipsis", no_wrap=True)
            for one in list(record.troubles)[-_TROUBLES_SHOWN:]
        ]
        return Group(_head(record, now_ms), table, *rest, *troubles)


def _head(record: RunRecord, now_ms: int) -> Text:
    if not record.began_ms:
        return Text("Spark starts …", style="dim")
    ran = span_text((now_ms - record.began_ms) // 1000)
    head = Text.assemble((record.pipeline, "bold"), f"  {record.outcome or 'running'}, {ran}")
    if record.is_stopping and record.outcome is None:
        head.append(f"  {STOPPING}", style="yellow")
    return head


def _style(query: QueryRecord) -> str:
    if query.failure:
        return "red"
    return "" if query.is_started else "dim"


def _figures(query: QueryRecord, now_ms: int) -> list[str]:
    last = query.last
    return [
        count_text(query.rows),
        count_text(query.rate(now_ms)),
        "-" if query.lag is None else count_text(query.lag),
        "-" if query.behind_s is None else span_text(query.behind_s),
        "-" if last is None else str(last.number),
        "-" if last is None else span_text(last.took_ms / 1000),
        count_text(query.rejected.total()) if query.rejected else "",
        f"{count_text(last.state_rows)}, {bytes_text(last.state_bytes)}"
        if last is not None and last.state_bytes
        else "",
    ]
