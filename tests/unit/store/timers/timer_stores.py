"""Stores with timers, delivered as a broker does, and moved by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from orbitmq.clock import ManualClock
from orbitmq.disk import PRIVATE
from orbitmq.model.names import TIMER_TOPIC
from orbitmq.record.decode import decode_record
from orbitmq.store.config import FlushMode
from orbitmq.store.message_store import MessageStore
from orbitmq.store.timers.delivered_copies import timer_id
from orbitmq.store.timers.layout import slot_of
from orbitmq.store.timers.timer_progress import TimerProgress
from orbitmq.store.timers.timers import Due, Timers
from tests.unit.store.stores import message, open_store

TOPIC = "orders"
# A whole second.
NOW_MS = 1_700_000_000_000
TIMER_LOG_BYTES = 52 * 20 + 16


class TimerStore:
    """A store with timers, whose due messages are delivered on request."""

    def __init__(
        self,
        root: Path,
        clock: ManualClock,
        *,
        copied: TimerProgress | None = None,
        **options: Any,
    ) -> None:
        self.root = root
        self.clock = clock
        self.store: MessageStore = open_store(
            root, clock=clock, flush_mode=FlushMode.ASYNC, **options
        )
        self.timers = Timers(
            self.store, root, file_bytes=TIMER_LOG_BYTES, modes=PRIVATE, clock=clock
        )
        self.timers.open(copied)

    def send(self, name: str, due_ms: int, **properties: str) -> None:
        """Store a message that is due then."""
        self.store.put(
            message(
                name.encode(),
                topic=TIMER_TOPIC,
                properties={
                    "UNIQ_KEY": name,
                    "TIMER_DELIVER_MS": str(due_ms),
                    "TIMER_OUT_MS": str(slot_of(due_ms)),
                    "REAL_TOPIC": TOPIC,
                    "REAL_QID": "0",
                }
                | properties,
            )
        )

    def recall(self, name: str, due_ms: int, *, with_topic: bool = False) -> None:
        """Store the marker that takes a message back."""
        key = f"{TOPIC}+{name}" if with_topic else name
        self.send(name, slot_of(due_ms) + 1, TIMER_DEL_UNIQKEY=key)

    def take_in(self) -> None:
        """Put everything visible into the wheel."""
        while self.timers.take_in(7):
            pass

    def deliver(self, count_max: int = 2**31) -> list[str]:
        """Deliver what is due, as many as that; returns the names."""
        self.take_in()
        names: list[str] = []
        while len(names) < count_max:
            self.timers.move_on()
            due = self.timers.due(min(5, count_max - len(names)))
            if not due and self.timers.read_ms >= self.clock.now_ms() // 1000 * 1000:
                break
            for each in due:
                names += self._deliver(each)
        self.store.flush()
        return names

    def _deliver(self, due: Due) -> list[str]:
        assert due.due_ms <= self.clock.now_ms()
        assert due.message is not None
        recalled = self.timers.is_recalled(due.message)
        if not recalled:
            self.store.put(message(due.message.body, prepared_offset=timer_id(due.physical_offset)))
        self.timers.done(due)
        return [] if recalled else [due.message.body.decode()]

    def delivered(self) -> list[str]:
        """The names of all messages in the real queue."""
        names: list[str] = []
        while len(names) < self.store.end_of(TOPIC, 0):
            read = self.store.read(TOPIC, 0, len(names))
            names += [decode_record(record).body.decode() for record in read.records]
        return names

    def close(self) -> None:
        """Stop cleanly."""
        self.timers.close()
        self.store.close()
