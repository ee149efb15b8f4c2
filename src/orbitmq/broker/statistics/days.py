"""Totals at the last two midnights, local time: what today and yesterday brought."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Final

_ONE_DAY: Final = datetime.timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Messages sent and read since the broker began, without those of system topics."""

    puts: int = 0
    reads: int = 0


class Days:
    """Remembers the totals of two midnights."""

    def __init__(self, now_ms: int, *, zone: datetime.tzinfo | None = None) -> None:
        self._zone = zone
        self._today = self._date(now_ms)
        self.this_morning = Totals()
        self.yesterday_morning = Totals()

    def note(self, now_ms: int, totals: Totals) -> None:
        """Keep the totals when a day has begun since the last call."""
        today = self._date(now_ms)
        if today <= self._today:
            return
        is_next = today - self._today == _ONE_DAY
        self.yesterday_morning = self.this_morning if is_next else totals
        self.this_morning = totals
        self._today = today

    def _date(self, now_ms: int) -> datetime.date:
        moment = datetime.datetime.fromtimestamp(now_ms / 1000, tz=datetime.UTC)
        return moment.astimezone(self._zone).date()
