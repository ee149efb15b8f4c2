"""How fast topics are consumed."""

from __future__ import annotations

from orbitmq.client.core.consuming.consume_speeds import ConsumeSpeeds
from orbitmq.clock import ManualClock
from orbitmq.protocol.requests.relays import ConsumeSpeed


def test_a_topic_nobody_consumed_has_no_speed() -> None:
    assert ConsumeSpeeds(ManualClock()).of("orders") == ConsumeSpeed()


async def test_speeds_are_those_of_the_last_minute() -> None:
    clock = ManualClock()
    speeds = ConsumeSpeeds(clock)

    for _ in range(20):
        speeds.pulled("orders", 32, spent_ms=4)
        speeds.consumed("orders", calls=2, done=30, failed=2, spent_ms=10)
        await clock.advance(1000)

    assert speeds.of("orders") == ConsumeSpeed(
        consumed_per_second=30,
        failed_per_second=2,
        failed_messages=40,
        consume_ms=5,
        pull_ms=4,
        pulled_per_second=32,
    )
    await clock.advance(60_000)
    assert speeds.of("orders") == ConsumeSpeed(failed_messages=40)
    await clock.advance(3_600_000)
    assert speeds.of("orders") == ConsumeSpeed()


async def test_topics_are_counted_apart_and_can_be_forgotten() -> None:
    speeds = ConsumeSpeeds(ManualClock())
    speeds.consumed("orders", calls=1, done=1, failed=0, spent_ms=1)
    speeds.consumed("bills", calls=1, done=0, failed=3, spent_ms=1)

    assert speeds.of("orders").failed_messages == 0
    assert speeds.of("bills").failed_messages == 3
    speeds.forget("bills")
    assert speeds.of("bills") == ConsumeSpeed()
