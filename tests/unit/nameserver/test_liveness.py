"""Brokers that are gone are removed: after silence, or with their connection."""

from __future__ import annotations

from typing import cast

import pytest

from orbitmq.clock import ManualClock
from orbitmq.model.topics import TopicConfig
from orbitmq.model.versions import DataVersion
from orbitmq.nameserver.broker_registry import BrokerKey, BrokerRegistry, Report
from orbitmq.nameserver.liveness import Liveness
from orbitmq.transport.connection import Connection


class Line:
    """A broker's connection, as far as liveness knows it."""

    def __init__(self) -> None:
        self.aborted = False

    def abort(self) -> None:
        self.aborted = True


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def registry() -> BrokerRegistry:
    return BrokerRegistry()


def register(registry: BrokerRegistry, clock: ManualClock, line: Line, name: str = "a") -> None:
    registry.register(
        Report(
            key=BrokerKey("C", f"{name}:10911"),
            broker_name=name,
            broker_id=0,
            ha_address=None,
            data_version=DataVersion(counter=1),
            read_topics=lambda: {n: TopicConfig(name=n) for n in ("T", "U")},
            connection=line,
        ),
        now_ms=clock.now_ms(),
        silence_ms_max=120_000,
    )


async def test_a_silent_broker_is_removed_by_the_scan_and_its_connection_closed(
    registry: BrokerRegistry, clock: ManualClock
) -> None:
    liveness = Liveness(registry, scan_interval_ms=10_000, clock=clock)
    liveness.start()
    line = Line()
    register(registry, clock, line)

    await clock.advance(120_000)
    assert "T" in registry.topics.queues
    await clock.advance(10_000)

    assert "T" not in registry.topics.queues
    assert line.aborted
    await liveness.stop()


async def test_a_scan_that_comes_late_lets_reports_that_wait_be_read_first(
    registry: BrokerRegistry, clock: ManualClock
) -> None:
    liveness = Liveness(registry, scan_interval_ms=10_000, clock=clock)
    line = Line()
    register(registry, clock, line)
    # No scan runs meanwhile: the process stands still.
    await clock.advance(200_000)

    liveness.remove_silent()
    assert "T" in registry.topics.queues

    await clock.advance(10_000)
    liveness.remove_silent()
    assert "T" not in registry.topics.queues


async def test_a_broker_that_reports_in_time_stays(
    registry: BrokerRegistry, clock: ManualClock
) -> None:
    liveness = Liveness(registry, scan_interval_ms=10_000, clock=clock)
    liveness.start()
    line = Line()

    for _ in range(10):
        register(registry, clock, line)
        await clock.advance(30_000)

    assert "T" in registry.topics.queues
    assert not line.aborted
    await liveness.stop()


async def test_a_closed_connection_removes_every_broker_that_reported_on_it(
    registry: BrokerRegistry, clock: ManualClock
) -> None:
    liveness = Liveness(registry, scan_interval_ms=10_000, clock=clock)
    shared, other = Line(), Line()
    register(registry, clock, shared, "a")
    register(registry, clock, shared, "b")
    register(registry, clock, other, "c")

    liveness.on_open(cast("Connection", shared))
    liveness.on_idle(cast("Connection", shared))
    liveness.on_close(cast("Connection", shared), None)

    assert sorted(registry.groups) == ["c"]
