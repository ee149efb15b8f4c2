"""Brokers that are gone are removed: after silence, or with their connection."""

from __future__ import annotations

from typing import cast

import pytest

from orbitmq.clock import ManualClock
from orbitmq.model.topics import TopicConfig
from orbitmq.model.versions import DataVersion
from orbitmq.nameserver.liveness import Liveness
from orbitmq.nameserver.route_table import BrokerKey, Report, RouteTable
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
def routes() -> RouteTable:
    return RouteTable()


def register(routes: RouteTable, clock: ManualClock, line: Line, name: str = "a") -> None:
    routes.register(
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
    routes: RouteTable, clock: ManualClock
) -> None:
    liveness = Liveness(routes, scan_interval_ms=10_000, clock=clock)
    liveness.start()
    line = Line()
    register(routes, clock, line)

    await clock.advance(120_000)
    assert routes.route("T") is not None
    await clock.advance(10_000)

    assert routes.route("T") is None
    assert line.aborted
    await liveness.stop()


async def test_a_scan_that_comes_late_lets_reports_that_wait_be_read_first(
    routes: RouteTable, clock: ManualClock
) -> None:
    liveness = Liveness(routes, scan_interval_ms=10_000, clock=clock)
    line = Line()
    register(routes, clock, line)
    # No scan runs meanwhile: the process stands still.
    await clock.advance(200_000)

    liveness.remove_silent()
    assert routes.route("T") is not None

    await clock.advance(10_000)
    liveness.remove_silent()
    assert routes.route("T") is None


async def test_a_broker_that_reports_in_time_stays(routes: RouteTable, clock: ManualClock) -> None:
    liveness = Liveness(routes, scan_interval_ms=10_000, clock=clock)
    liveness.start()
    line = Line()

    for _ in range(10):
        register(routes, clock, line)
        await clock.advance(30_000)

    assert routes.route("T") is not None
    assert not line.aborted
    await liveness.stop()


async def test_a_closed_connection_removes_every_broker_that_reported_on_it(
    routes: RouteTable, clock: ManualClock
) -> None:
    liveness = Liveness(routes, scan_interval_ms=10_000, clock=clock)
    shared, other = Line(), Line()
    register(routes, clock, shared, "a")
    register(routes, clock, shared, "b")
    register(routes, clock, other, "c")

    liveness.on_open(cast("Connection", shared))
    liveness.on_idle(cast("Connection", shared))
    liveness.on_close(cast("Connection", shared), None)

    assert sorted(routes.cluster_view().brokers) == ["c"]
