"""Timers against a model: any order of sends, recalls, deliveries, saves, stops, kills, clock jumps."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from orbitmq.clock import ManualClock
from orbitmq.store.timers.layout import slot_of
from tests.unit.store.timers.timer_stores import NOW_MS, TimerStore


class TimerModel(RuleBasedStateMachine):
    """Each message is delivered once, not before its time, and not if it was recalled before."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.lives = 0
        # By how much the clock was set back in all.
        self.back_ms = 0
        self.clock = ManualClock(NOW_MS)
        self.timers = TimerStore(self.folder / "0", self.clock)
        self.due: dict[str, int] = {}
        self.recalled: set[str] = set()
        self.delivered_at: dict[str, int] = {}

    def teardown(self) -> None:
        self.timers.store.close()
        shutil.rmtree(self.folder)

    @rule(ahead_ms=st.sampled_from([0, 1, 400, 999, 1000, 1001, 2500, 40_000]))
    def send(self, ahead_ms: int) -> None:
        name = f"m{len(self.due)}"
        self.due[name] = self.clock.now_ms() + ahead_ms
        self.timers.send(name, self.due[name])

    @rule(number=st.integers(0, 20))
    def recall(self, number: int) -> None:
        name = f"m{number}"
        is_pending = name in self.due and name not in self.delivered_at
        if is_pending and slot_of(self.due[name]) >= self.clock.now_ms():
            self.timers.recall(name, self.due[name])
            self.recalled.add(name)

    @rule(passed_ms=st.sampled_from([1, 300, 999, 1000, 5000, 50_000]))
    def wait(self, passed_ms: int) -> None:
        self.clock.adjust(passed_ms)

    @rule(back_ms=st.sampled_from([700, 3000, 3_600_000]))
    def set_clock_back(self, back_ms: int) -> None:
        self.clock.adjust(-back_ms)
        self.back_ms += back_ms

    @rule(count_max=st.integers(1, 100))
    def deliver(self, count_max: int) -> None:
        for name in self.timers.deliver(count_max):
            assert name not in self.delivered_at, "delivered twice"
            assert name not in self.recalled
            assert self.due[name] <= self.clock.now_ms(), "delivered early"
            self.delivered_at[name] = self.clock.now_ms()

    @rule()
    def save(self) -> None:
        self.timers.timers.save()

    @rule()
    def stop_and_start(self) -> None:
        self.timers.close()
        self.timers = TimerStore(self.timers.root, self.clock)

    @rule()
    def kill_and_start(self) -> None:
        self.lives += 1
        root = self.folder / str(self.lives)
        shutil.copytree(self.timers.root, root)
        self.timers.store.close()
        shutil.rmtree(self.timers.root)
        self.timers = TimerStore(root, self.clock)

    @rule()
    def deliver_all(self) -> None:
        self.clock.adjust(100_000 + self.back_ms)
        self.back_ms = 0
        self.deliver(1000)
        assert set(self.delivered_at) == set(self.due) - self.recalled, "lost"

    @invariant()
    def the_queue_has_each_delivered_message_once(self) -> None:
        assert sorted(self.timers.delivered()) == sorted(self.delivered_at)


TestTimerModel = TimerModel.TestCase
TestTimerModel.settings = settings(max_examples=6, stateful_step_count=25, deadline=None)
