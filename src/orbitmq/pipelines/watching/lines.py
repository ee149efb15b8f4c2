"""What happens as plain lines, for a log or a pipe."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from orbitmq.pipelines.watching.amounts import bytes_text, count_text, span_text
from orbitmq.pipelines.watching.events import (
    Batch,
    Event,
    Lag,
    QueryRestarted,
    RunEnded,
    Stopping,
)

STOPPING: Final = "stopping after the batches at hand; once more ends at once"


@dataclass(slots=True)
class Lines:
    """Shows each event that people care about in a line."""

    show: Callable[[str], None]

    def __call__(self, event: Event) -> None:
        """Show an event, if it is one to show."""
        match event:
            case Batch():
                # Those without rows only close windows.
                if event.rows:
                    self.show(_of_batch(event))
            case Lag():
                if event.messages:
                    behind = (
                        "" if event.behind_s is None else f", {span_text(event.behind_s)} behind"
                    )
                    self.show(f"{event.query}: lag {event.messages}{behind}")
            case QueryRestarted():
                self.show(f"{event.query}: starts again: {event.reason}")
            case Stopping():
                self.show(STOPPING)
            case RunEnded():
                for query, rows in event.rows.items():
                    self.show(f"{query}: {_rows(rows)} in this run")
            case _:
                pass


def _of_batch(batch: Batch) -> str:
    parts = [f"batch {batch.number}", f"{_rows(batch.rows)} in {batch.took_ms} ms"]
    parts.append(f"{batch.rows * 1000 // max(batch.took_ms, 1)}/s")
    if batch.rejected:
        parts += (f"{count} {reason}" for reason, count in batch.rejected.items())
    if batch.lag:
        parts.append(f"lag {batch.lag}")
    if batch.state_rows:
        parts.append(f"state {_rows(batch.state_rows)} {bytes_text(batch.state_bytes)}")
    if batch.late_rows:
        parts.append(f"{count_text(batch.late_rows)} too late")
    return f"{batch.query}: {', '.join(parts)}"


def _rows(count: int) -> str:
    return f"{count} row" if count == 1 else f"{count} rows"
