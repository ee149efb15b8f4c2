"""What `orbitmq replay` shows before, meanwhile and at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final, Self

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

from orbitmq.cli.output import counted, escaped, show_json, show_one, show_rows, time_text
from orbitmq.clock import SystemClock
from orbitmq.model.property_names import BROKER_PREFIX, KEYS, NOT_SENT_ON, TAGS

if TYPE_CHECKING:
    from types import TracebackType

    from orbitmq.pipelines.replaying.plan import Plan
    from orbitmq.pipelines.replaying.sending import Sent
    from orbitmq.pipelines.replaying.state import Progress as Done

_SHOWN_MAX: Final = 200
# Columns of a message that no copy has, which the sink ignores.
_SENT: Final = ("body", "keys", "tags", "flag", "properties", "shardingKey", "brokerName",
                "queueId", "delayLevel")  # fmt: skip
# Properties that copies do not have, or that have a column of their own.
_NOT_SHOWN: Final = NOT_SENT_ON | {KEYS, TAGS}
_LINES_MS: Final = 5_000


def facts_of(
    plan: Plan,
    done: Done,
    *,
    source: str,
    target: str,
    order: str,
    rate: float | None,
) -> dict[str, object]:
    """Describe what a replay sends."""
    left = plan.messages - plan.messages_before(done.chunks)
    facts: dict[str, object] = {
        "replay": plan.id,
        "from": source,
        "into": target,
        "messages": plan.messages,
        "left_out": plan.in_range - plan.messages,
        "first_stored": time_text(plan.first_ms),
        "last_stored": time_text(plan.last_ms),
    }
    if plan.request.transform:
        facts["rows"] = plan.rows
    if done.chunks:
        facts["not_sent_yet"] = left
    return facts | {
        "order": order,
        "guarantee": plan.request.guarantee,
        "rate": "no limit" if rate is None else f"{rate:g} a second",
        "chunks": len(plan.chunks),
    }


def show_preview(
    facts: Mapping[str, object], rows: Sequence[Mapping[str, Any]], *, as_json: bool
) -> None:
    """Show what a replay sends, with its first rows."""
    shown = [_shown(row) for row in rows]
    if as_json:
        show_json({**facts, "sample": shown})
        return
    show_one(facts, as_json=False)
    typer.echo()
    show_rows(shown, as_json=False)


def _shown(row: Mapping[str, Any]) -> dict[str, object]:
    by_name = {name.lower(): value for name, value in row.items()}
    return {
        name: _value(by_name[name.lower()])
        for name in _SENT
        # A flag of 0 is what messages have that set none.
        if name.lower() in by_name and not (name == "flag" and not by_name["flag"])
    }


def _value(value: Any) -> object:
    if isinstance(value, bytes | bytearray):
        try:
            value = value.decode()
        except UnicodeDecodeError:
            return f"0x{bytes(value[: _SHOWN_MAX // 2]).hex()}{_dots(len(value) * 2)}"
    if isinstance(value, dict):
        own = {name: text for name, text in value.items()
               if name not in _NOT_SHOWN and not name.startswith(BROKER_PREFIX)}  # fmt: skip
        value = ", ".join(f"{name}={text}" for name, text in own.items())
    if isinstance(value, str):
        return escaped(value[:_SHOWN_MAX]) + _dots(len(value))
    return value


def _dots(length: int) -> str:
    return "…" if length > _SHOWN_MAX else ""


class ProgressDisplay:
    """Shows how far a replay is: a bar on a terminal, else a line now and then."""

    def __init__(self, plan: Plan, done: Done, *, is_quiet: bool) -> None:
        self._messages = plan.messages
        self._sent = plan.messages_before(done.chunks)
        self._first = self._sent
        self._is_quiet = is_quiet
        self._clock = SystemClock()
        self._begun_ms = self._shown_ms = self._clock.monotonic_ms()
        self._opened = ExitStack()
        self._bar: Progress | None = None
        self._task = TaskID(0)

    def __enter__(self) -> Self:
        console = Console(stderr=True)
        if console.is_terminal and not self._is_quiet:
            bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[rate]}"),
                TimeRemainingColumn(),
                console=console,
            )
            self._bar = self._opened.enter_context(bar)
            self._task = bar.add_task(
                "messages", total=self._messages, completed=self._sent, rate=""
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._opened.close()

    def add(self, sent: Sent) -> None:
        """Show a chunk that was sent."""
        self._sent += sent.messages
        now_ms = self._clock.monotonic_ms()
        a_second = (self._sent - self._first) * 1000 / max(now_ms - self._begun_ms, 1)
        if self._bar is not None:
            self._bar.update(self._task, completed=self._sent, rate=f"{a_second:,.0f}/s")
        elif not self._is_quiet and (
            now_ms - self._shown_ms >= _LINES_MS or self._sent == self._messages
        ):
            self._shown_ms = now_ms
            left_s = (self._messages - self._sent) / max(a_second, 0.001)
            typer.echo(
                f"{self._sent} of {counted(self._messages, 'message')}, {a_second:,.0f}/s, "
                f"{_span(left_s)} left",
                err=True,
            )


def _span(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h {minutes:02}m"
    return f"{minutes}m {rest:02}s" if minutes else f"{rest}s"
