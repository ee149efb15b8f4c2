"""Pulls of a push consumer when brokers suggest another, are busy, or forget the group."""

from __future__ import annotations

from typing import Any

import pytest

from orbitmq.client.aio.instance.broker_calls import BrokerCalls, Pulled
from orbitmq.client.aio.instance.routes import Routes
from orbitmq.errors import RemoteError
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.requests.pulling import PullFlag, PullMessages
from tests.integration.client.conftest import Cluster
from tests.integration.client.consuming import Seen, consumer_of, numbered, send
from tests.waiting import until


class Pulls:
    """Intercepts the pulls of a consumer: passes, changes or refuses them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.headers: list[PullMessages] = []
        self.suggested: int | None = None
        self.refusals: list[int] = []
        pull = BrokerCalls.pull

        async def through(
            brokers: BrokerCalls, address: str, header: PullMessages, **options: Any
        ) -> Pulled:
            self.headers.append(header)
            if self.refusals:
                raise RemoteError(
                    self.refusals.pop(), "by the test", call="PULL_MESSAGE", address=address
                )
            pulled = await pull(brokers, address, header, **options)
            if self.suggested is None:
                return pulled
            return pulled._replace(suggested_broker_id=self.suggested)

        monkeypatch.setattr(BrokerCalls, "pull", through)


@pytest.fixture
def pulls(monkeypatch: pytest.MonkeyPatch) -> Pulls:
    return Pulls(monkeypatch)


async def test_the_next_pull_goes_to_the_suggested_broker_and_commits_nothing_at_a_slave(
    cluster: Cluster, topic: str, group: str, pulls: Pulls, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def address_of(
        _: Routes, _name: str, broker_id: int, *, avoids_silent: bool = True
    ) -> tuple[str, bool]:
        del avoids_silent
        asked.append(broker_id)
        return cluster.address(), broker_id != 0

    monkeypatch.setattr(Routes, "address_of", address_of)
    await cluster.make_topic(topic, queues=1)
    pulls.suggested = 1
    seen = Seen()
    consumer = consumer_of(cluster, group, on_message=seen.awaited)
    consumer.subscribe(topic)
    async with consumer:
        await send(cluster, topic, *numbered(3))
        await seen.count(3)
        await send(cluster, topic, b"more")
        await seen.count(4)
        to_slave = [header for header in pulls.headers if header.topic == topic][-1]
        pulls.suggested = 0
        await send(cluster, topic, b"yet more")
        await seen.count(5)
        await send(cluster, topic, b"the last")
        await seen.count(6)
        to_master = [header for header in pulls.headers if header.topic == topic][-1]

    assert 1 in asked
    assert not to_slave.system_flag & PullFlag.COMMIT_OFFSET
    assert to_master.system_flag & PullFlag.COMMIT_OFFSET
    assert to_master.commit_offset >= 4


async def test_pulls_of_an_ordered_consumer_commit_nothing(
    cluster: Cluster, topic: str, group: str, pulls: Pulls
) -> None:
    await cluster.make_topic(topic, queues=1)
    seen = Seen()
    consumer = consumer_of(cluster, group, on_message=seen.awaited, ordered=True)
    consumer.subscribe(topic)
    async with consumer:
        for number in range(1, 4):
            await send(cluster, topic, b"%d" % number)
            await seen.count(number)

    assert {header.commit_offset for header in pulls.headers} == {0}
    assert not any(header.system_flag & PullFlag.COMMIT_OFFSET for header in pulls.headers)


@pytest.mark.parametrize(
    "code",
    [
        ResponseCode.FLOW_CONTROL,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SUBSCRIPTION_NOT_EXIST,
        ResponseCode.SUBSCRIPTION_NOT_LATEST,
    ],
)
async def test_a_refused_pull_is_retried(
    cluster: Cluster, topic: str, group: str, pulls: Pulls, code: ResponseCode
) -> None:
    await cluster.make_topic(topic, queues=1)
    await send(cluster, topic, *numbered(3))
    pulls.refusals = [code] * 3
    seen = Seen()
    consumer = consumer_of(cluster, group, on_message=seen.awaited)
    consumer.subscribe(topic)

    async with consumer:
        await seen.count(3)

    assert pulls.refusals == []
    assert seen.bodies == numbered(3)


async def test_pulls_carry_what_may_be_committed(
    cluster: Cluster, topic: str, group: str, pulls: Pulls
) -> None:
    await cluster.make_topic(topic, queues=1)
    seen = Seen()
    consumer = consumer_of(cluster, group, on_message=seen.awaited, persist_interval_ms=60_000)
    consumer.subscribe(topic)
    async with consumer:
        await send(cluster, topic, b"one")
        await seen.count(1)
        await send(cluster, topic, b"two")
        await until(lambda: any(header.commit_offset == 1 for header in pulls.headers))

    assert {header.suspend_timeout_ms for header in pulls.headers} == {15_000}
    assert {header.messages_max for header in pulls.headers} == {32}


async def test_pulls_that_stopped_unnoticed_are_restarted(
    cluster: Cluster, topic: str, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.make_topic(topic, queues=1)
    seen = Seen()
    consumer = consumer_of(cluster, group, on_message=seen.awaited)
    consumer.subscribe(topic)
    async with consumer:
        await send(cluster, topic, b"one")
        await seen.count(1)
        member = consumer._member
        assert member is not None
        for queue, task in member._puller._tasks.items():
            task.cancel()
            member._windows[queue]._pull_monotonic_ms -= 200_000
        await send(cluster, topic, b"two")
        member.retake_expired()
        await seen.count(2)

    assert "pulls had stopped, restarting them" in caplog.text
    assert seen.bodies == [b"one", b"two"]
