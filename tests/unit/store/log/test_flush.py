"""Group commit, intervals, and the fence."""

from __future__ import annotations

import errno
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from orbitmq.clock import SystemClock
from orbitmq.errors import StoreFencedError
from orbitmq.model.queues import PhysicalOffset
from orbitmq.store.log.flush import Flusher
from orbitmq.store.log.obstacles import Obstacles

WAIT_SECONDS = 60


class FakeLog:
    """A log whose syncs can be held up, counted and made to fail."""

    def __init__(self) -> None:
        self.end = 0
        self.synced = 0
        self.syncs = 0
        self.failure: Exception | None = None
        self.round_failure: Exception | None = None
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()
        self.rounds: list[int] = []
        self.round_done = threading.Event()

    def sync(self) -> PhysicalOffset:
        end = self.end
        self.syncs += 1
        self.entered.set()
        self.gate.wait(WAIT_SECONDS)
        if self.failure is not None:
            raise self.failure
        self.synced = end
        return PhysicalOffset(end)

    def on_round(self, flushed: PhysicalOffset) -> None:
        if self.round_failure is not None:
            raise self.round_failure
        self.rounds.append(flushed)
        self.round_done.set()


@contextmanager
def _flusher(log: FakeLog, **options: int) -> Iterator[Flusher]:
    settings = {"interval_ms": 60_000, "pages_min": 4, "thorough_interval_ms": 60_000} | options
    flusher = Flusher(
        sync=log.sync,
        dirty_bytes=lambda: log.end - log.synced,
        on_round=log.on_round,
        obstacles=Obstacles(),
        clock=SystemClock(),
        interval_ms=settings["interval_ms"],
        pages_min=settings["pages_min"],
        thorough_interval_ms=settings["thorough_interval_ms"],
    )
    flusher.start(PhysicalOffset(0))
    try:
        yield flusher
    finally:
        log.gate.set()
        flusher.stop()


def test_a_waiter_is_released_by_the_round_it_requested() -> None:
    log = FakeLog()
    with _flusher(log) as flusher:
        log.end = 10
        flusher.request()

        assert flusher.wait(PhysicalOffset(10), WAIT_SECONDS * 1000)
        assert log.rounds == [10]


def test_all_waiters_share_one_sync() -> None:
    log = FakeLog()
    results: list[bool] = []
    with _flusher(log) as flusher:
        asked = threading.Semaphore(0)

        def ask_and_wait(end: int) -> None:
            flusher.request()
            asked.release()
            results.append(flusher.wait(PhysicalOffset(end), WAIT_SECONDS * 1000))

        log.gate.clear()
        log.end = 1
        flusher.request()
        assert log.entered.wait(WAIT_SECONDS)
        log.end = 51
        waiters = [
            threading.Thread(target=ask_and_wait, args=(2 + number,)) for number in range(50)
        ]
        for waiter in waiters:
            waiter.start()
        for _ in waiters:
            assert asked.acquire(timeout=WAIT_SECONDS)
        log.gate.set()
        for waiter in waiters:
            waiter.join()

    assert results == [True] * 50
    # The one that was held up, one for all later requests, and the last.
    assert log.syncs <= 3


def test_records_become_visible_before_waiters_are_notified() -> None:
    log = FakeLog()
    with _flusher(log) as flusher:
        log.end = 5
        flusher.request()
        flusher.wait(PhysicalOffset(5), None)

        assert log.rounds == [5]


def test_a_timeout_is_not_a_success() -> None:
    log = FakeLog()
    log.gate.clear()
    with _flusher(log) as flusher:
        log.end = 5
        flusher.request()

        assert not flusher.wait(PhysicalOffset(5), 1)
        log.gate.set()
        assert flusher.wait(PhysicalOffset(5), WAIT_SECONDS * 1000)


@pytest.mark.parametrize(
    "options", [{"pages_min": 1}, {"pages_min": 100, "thorough_interval_ms": 1}]
)
def test_rounds_come_at_intervals_when_enough_is_dirty_or_long_enough_passed(
    options: dict[str, int],
) -> None:
    log = FakeLog()
    with _flusher(log, interval_ms=1, **options):
        log.end = 4096

        assert log.round_done.wait(WAIT_SECONDS)


def test_a_clean_log_is_not_synced() -> None:
    log = FakeLog()
    turns = threading.Semaphore(0)

    def dirty() -> int:
        turns.release()
        return 0

    flusher = Flusher(
        sync=log.sync,
        dirty_bytes=dirty,
        on_round=log.on_round,
        obstacles=Obstacles(),
        clock=SystemClock(),
        interval_ms=1,
        pages_min=0,
        thorough_interval_ms=1,
    )
    flusher.start(PhysicalOffset(0))
    for _ in range(5):
        assert turns.acquire(timeout=WAIT_SECONDS)

    assert log.syncs == 0
    flusher.stop()


def test_stopping_does_a_last_round() -> None:
    log = FakeLog()
    with _flusher(log) as flusher:
        log.end = 5

    assert flusher.flushed == 5


def test_a_failed_sync_fences_permanently(caplog: pytest.LogCaptureFixture) -> None:
    log = FakeLog()
    with _flusher(log) as flusher, caplog.at_level(logging.ERROR):
        log.end = 5
        flusher.request()
        flusher.wait(PhysicalOffset(5), None)
        log.end, log.failure = 10, OSError(errno.EIO, "Input/output error")
        flusher.request()
        with pytest.raises(StoreFencedError, match="Input/output error"):
            flusher.wait(PhysicalOffset(10), WAIT_SECONDS * 1000)

        log.failure = None
        flusher.request()
        with pytest.raises(StoreFencedError):
            flusher.wait(PhysicalOffset(10), WAIT_SECONDS * 1000)
        with pytest.raises(StoreFencedError, match="restart"):
            flusher.check()
        assert flusher.wait(PhysicalOffset(5), 0), "what was on disk before stays acknowledged"

    assert flusher.flushed == 5
    assert log.syncs == 2
    assert [record.message for record in caplog.records if "fenced" in record.message]


def test_a_fence_from_elsewhere_holds_back_a_round_under_way() -> None:
    log = FakeLog()
    log.gate.clear()
    with _flusher(log) as flusher:
        log.end = 5
        flusher.request()
        assert log.entered.wait(WAIT_SECONDS)
        flusher.fence("a queue could not be synced")
        flusher.fence("only the first reason counts")
        log.gate.set()

        with pytest.raises(StoreFencedError, match="a queue could not"):
            flusher.wait(PhysicalOffset(5), WAIT_SECONDS * 1000)

    assert flusher.flushed == 0
    assert log.rounds == []


def test_a_failure_after_the_sync_releases_the_waiters_and_then_fences() -> None:
    log = FakeLog()
    log.round_failure = RuntimeError("a bug")
    with _flusher(log) as flusher:
        log.end = 5
        flusher.request()

        assert flusher.wait(PhysicalOffset(5), WAIT_SECONDS * 1000)
    assert flusher.is_fenced


def test_it_can_be_stopped_without_having_started() -> None:
    log = FakeLog()
    Flusher(
        sync=log.sync,
        dirty_bytes=lambda: 0,
        on_round=log.on_round,
        obstacles=Obstacles(),
        clock=SystemClock(),
        interval_ms=1,
        pages_min=0,
        thorough_interval_ms=1,
    ).stop()

    assert log.syncs == 0
