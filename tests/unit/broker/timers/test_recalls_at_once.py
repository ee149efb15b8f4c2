"""Recalls of one message at once: one that fails leaves the others in effect."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from orbitmq.broker.timers.recall_markers import Recall
from orbitmq.broker.timers.timer_delivery import TimerDelivery
from orbitmq.clock import ManualClock
from orbitmq.model.names import TIMER_TOPIC
from orbitmq.record.decode import StoredMessage
from orbitmq.store.timers.layout import slot_of
from orbitmq.store.timers.timer_messages import recall_key
from tests.unit.store.timers.timer_stores import NOW_MS, TOPIC, TimerStore

DUE_MS = NOW_MS + 60_500
RECALL = Recall(slot_of(DUE_MS), recall_key(TOPIC, "a"))


@pytest.fixture
def timers(tmp_path: Path) -> TimerStore:
    return TimerStore(tmp_path, ManualClock(NOW_MS))


@pytest.fixture
async def delivery(timers: TimerStore) -> AsyncIterator[TimerDelivery]:
    made = TimerDelivery(
        store=timers.store,
        timers=timers.timers,
        on_delivered=lambda _: None,
        save_interval_ms=1000,
        clock=timers.clock,
    )
    yield made
    await made.stop()
    timers.store.close()


@pytest.fixture
def message(timers: TimerStore) -> StoredMessage:
    timers.send("a", DUE_MS)
    (found,) = timers.store.find(TIMER_TOPIC, "a")
    return found


@pytest.mark.parametrize("offsets", [(None, 7), (7, None)])
async def test_a_recall_that_fails_leaves_one_that_was_stored(
    delivery: TimerDelivery, message: StoredMessage, offsets: tuple[int | None, ...]
) -> None:
    for _ in offsets:
        delivery.begin_recall(RECALL)
    for offset in offsets:
        delivery.end_recall(RECALL, offset)

    assert delivery.is_being_recalled(message)


async def test_a_recall_that_fails_leaves_one_that_is_under_way(
    delivery: TimerDelivery, message: StoredMessage
) -> None:
    delivery.begin_recall(RECALL)
    delivery.begin_recall(RECALL)
    delivery.end_recall(RECALL, None)

    assert delivery.is_being_recalled(message)


async def test_a_message_whose_recalls_all_failed_is_pending(
    delivery: TimerDelivery, message: StoredMessage
) -> None:
    for _ in range(2):
        delivery.begin_recall(RECALL)
    for _ in range(2):
        delivery.end_recall(RECALL, None)

    assert not delivery.is_being_recalled(message)


async def test_a_recall_of_another_second_leaves_a_message(
    delivery: TimerDelivery, message: StoredMessage
) -> None:
    delivery.begin_recall(RECALL._replace(slot_ms=RECALL.slot_ms + 1000))

    assert not delivery.is_being_recalled(message)
