"""Reading queues in bulk, from brokers with large replies and with small ones."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest

from orbitmq.client.aio.pull.record_reader import RecordReader, RecordRun
from orbitmq.client.core.subscriptions import Expression, by_sql
from orbitmq.client.sync.record_reader import RecordReader as BlockingRecordReader
from orbitmq.errors import QueueReadError, RouteNotFoundError, StateError
from orbitmq.model.queues import MessageQueue
from orbitmq.model.routes import MASTER_ID
from orbitmq.protocol.requests.pulling import PullMessages
from orbitmq.record.decode import decode_records
from tests.integration.client.conftest import Cluster
from tests.integration.client.pulling import queue_of, send
from tests.unit.store.stores import message

BULK = [{}, {"bulkPullCountMax": "0"}]


def reader(cluster: Cluster, **options: object) -> RecordReader:
    chosen: dict[str, object] = {"namesrv": cluster.namesrv, "retry_pause_ms": 1, **options}
    return RecordReader(**chosen)  # type: ignore[arg-type]  # any option of any type


async def fill(
    cluster: Cluster, topic: str, count: int, *, queue_id: int = 0, size: int = 1
) -> None:
    """Append messages to a queue directly in the store, which is fast."""
    store = cluster.brokers["broker-a"].store
    drafts = [
        message(
            b"%d" % number + bytes(size),
            topic=topic,
            queue_id=queue_id,
            properties={"TAGS": "even" if number % 2 == 0 else "odd", "n": str(number)},
        )
        for number in range(count)
    ]
    for start in range(0, count, 50):
        store.put_batch(drafts[start : start + 50])


async def collected(
    reading: RecordReader,
    ranges: Iterable[tuple[MessageQueue, int, int]],
    expression: Expression = "*",
) -> list[RecordRun]:
    return [run async for run in reading.read(ranges, expression)]


def offsets(runs: Iterable[RecordRun]) -> list[int]:
    return [found.queue_offset for run in runs for found in decode_records(run.records)]


def check_cover(runs: list[RecordRun], start: int, end: int) -> None:
    """Check that the runs of a queue follow each other without a gap."""
    position = start
    for run in runs:
        assert run.start == position
        assert run.end > run.start
        position = run.end
    assert position == end


@pytest.mark.parametrize(("bulk", "is_bodiless"), [(BULK[0], True), (BULK[1], False)])
async def test_bodies_that_nobody_wants_are_not_sent_by_brokers_that_can_leave_them_out(
    cluster: Cluster,
    topic: str,
    bulk: dict[str, str],
    is_bodiless: bool,  # noqa: FBT001  # a parameter
) -> None:
    await cluster.stop_broker()
    await cluster.start_broker(**bulk)
    await cluster.make_topic(topic, queues=1)
    await fill(cluster, topic, 900, size=2_000)
    async with reader(cluster, pull_bytes_max=300_000) as reading:
        (queue,) = await reading.queues(topic)
        whole = await collected(reading, [(queue, 0, 900)])

        runs = [run async for run in reading.read([(queue, 0, 900)], with_bodies=False)]

    check_cover(runs, 0, 900)
    assert offsets(runs) == list(range(900))
    found = [record for run in runs for record in decode_records(run.records)]
    assert {bool(record.stored_body) for record in found} == {not is_bodiless}
    assert [record.properties_bytes for record in found] == [
        record.properties_bytes for run in whole for record in decode_records(run.records)
    ]
    if is_bodiless:
        assert len(runs) < len(whole), "a reply holds more messages"


@pytest.mark.parametrize("bulk", BULK)
async def test_a_range_comes_whole_and_in_order(
    cluster: Cluster, topic: str, bulk: dict[str, str]
) -> None:
    await cluster.stop_broker()
    await cluster.start_broker(**bulk)
    await cluster.make_topic(topic, queues=1)
    await fill(cluster, topic, 900)
    async with reader(cluster) as reading:
        (queue,) = await reading.queues(topic)

        runs = await collected(reading, [(queue, 7, 893)])

    check_cover(runs, 7, 893)
    assert offsets(runs) == [*range(7, 893)]
    assert not any(run.is_lost for run in runs)
    assert (len(runs) < 5) == (not bulk)


async def test_a_reply_is_as_large_as_the_reader_wants(cluster: Cluster, topic: str) -> None:
    await cluster.make_topic(topic, queues=1)
    await fill(cluster, topic, 600, size=1000)
    async with reader(cluster, pull_bytes_max=50_000) as reading:
        runs = await collected(reading, [(queue_of(topic), 0, 600)])

    check_cover(runs, 0, 600)
    assert offsets(runs) == [*range(600)]
    assert len(runs) > 10
    assert all(30_000 < len(run.records) <= 50_000 for run in runs[:-1])


async def test_several_pulls_are_in_flight_at_a_time(
    cluster: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.make_topic(topic, queues=1)
    await fill(cluster, topic, 600, size=1000)
    async with reader(cluster, pull_bytes_max=20_000, pulls_ahead=3) as reading:
        under_way, most = 0, 0
        pull = reading._running().brokers.pull

        async def counted(address: str, header: PullMessages, *, timeout_ms: float) -> object:
            nonlocal under_way, most
            under_way += 1
            most = max(most, under_way)
            try:
                return await pull(address, header, timeout_ms=timeout_ms)
            finally:
                under_way -= 1

        monkeypatch.setattr(reading._running().brokers, "pull", counted)
        assert offsets(await collected(reading, [(queue_of(topic), 0, 600)])) == [*range(600)]

    assert 3 <= most <= 4


async def test_many_queues_are_read_one_after_the_other(cluster: Cluster, topic: str) -> None:
    await cluster.make_topic(topic, queues=8)
    for queue_id in range(8):
        await fill(cluster, topic, 10 * queue_id, queue_id=queue_id)
    async with reader(cluster) as reading:
        queues = await reading.queues(topic)
        ends = [await reading.max_offset(queue) for queue in queues]
        runs = await collected(reading, [(queues[n], 0, ends[n]) for n in range(8)])

    assert ends == [10 * n for n in range(8)]
    assert [run.queue.queue_id for run in runs] == [*range(1, 8)]
    assert offsets(runs) == [n for end in ends for n in range(end)]


@pytest.mark.parametrize("bulk", BULK)
@pytest.mark.parametrize(("expression", "odd"), [("odd", True), (by_sql("n >= 0"), False)])
async def test_a_filter_works_at_the_broker_and_never_beyond_the_end(
    cluster: Cluster, topic: str, bulk: dict[str, str], expression: Expression, *, odd: bool
) -> None:
    await cluster.stop_broker()
    await cluster.start_broker(**bulk)
    await cluster.make_topic(topic, queues=1)
    await fill(cluster, topic, 900)
    async with reader(cluster) as reading:
        runs = await collected(reading, [(queue_of(topic), 1, 700)], expression)
        none = await collected(reading, [(queue_of(topic), 0, 900)], "nobody")

    check_cover(runs, 1, 700)
    assert offsets(runs) == [*range(1, 700, 2 if odd else 1)]
    assert offsets(none) == []
    check_cover(none, 0, 900)
    assert not any(run.is_lost for run in none)


async def test_a_read_that_is_abandoned_leaves_nothing_in_flight(
    cluster: Cluster, topic: str
) -> None:
    await cluster.make_topic(topic, queues=1)
    await fill(cluster, topic, 600, size=1000)
    async with reader(cluster, pull_bytes_max=20_000) as reading:
        runs = reading.read([(queue_of(topic), 0, 600)])
        await anext(runs)
        await anext(runs)
        await runs.aclose()

        assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("pull")]


async def test_deleted_messages_are_reported_and_the_rest_is_read(
    cluster: Cluster, topic: str
) -> None:
    await cluster.stop_broker()
    await cluster.start_broker(mappedFileSizeCommitLog="65536", fileReservedTime="0")
    await cluster.make_topic(topic, queues=1)
    await fill(cluster, topic, 200, size=1000)
    store = cluster.brokers["broker-a"].store
    await asyncio.to_thread(store._upkeep.round)
    assert await asyncio.to_thread(store.delete_expired)
    async with reader(cluster, retry_pause_ms=60_000) as reading:
        start = await reading.min_offset(queue_of(topic))

        runs = await collected(reading, [(queue_of(topic), 3, 200)])

    assert start > 3
    check_cover(runs, 3, 200)
    assert offsets(runs) == [*range(start, 200)]
    assert [(run.start, run.end) for run in runs if run.is_lost] == [(3, start)]


async def test_offsets_past_the_end_of_a_queue_are_reported(cluster: Cluster, topic: str) -> None:
    await cluster.make_topic(topic, queues=1)
    await fill(cluster, topic, 100)
    async with reader(cluster, retries=1) as reading:
        runs = await collected(reading, [(queue_of(topic), 90, 120)])

    check_cover(runs, 90, 120)
    assert [(run.end <= 100, run.is_lost) for run in runs] == [
        (run.end <= 100, run.start >= 100) for run in runs
    ]


async def test_reading_resumes_when_a_broker_comes_back(cluster: Cluster, topic: str) -> None:
    await cluster.make_topic(topic, queues=1)
    await fill(cluster, topic, 300, size=1000)
    async with reader(
        cluster, pull_bytes_max=20_000, pulls_ahead=1, retries=1000, retry_pause_ms=50
    ) as reading:
        runs = reading.read([(queue_of(topic), 0, 300)])
        found = [await anext(runs)]
        await cluster.kill_broker()
        rest = asyncio.ensure_future(_rest(runs))
        await cluster.start_broker()

        found += await rest

    check_cover(found, 0, 300)
    assert offsets(found) == [*range(300)]


async def _rest(runs: object) -> list[RecordRun]:
    return [run async for run in runs]  # type: ignore[attr-defined]  # a generator of runs


async def test_a_broker_that_stays_away_is_named(cluster: Cluster, topic: str) -> None:
    await cluster.make_topic(topic, queues=1)
    await fill(cluster, topic, 300, size=1000)
    async with reader(cluster, pull_bytes_max=20_000, pulls_ahead=1, retries=2) as reading:
        runs = reading.read([(queue_of(topic), 0, 300)])
        await anext(runs)
        await cluster.kill_broker()

        with pytest.raises(
            QueueReadError, match=rf"queue 0 of topic '{topic}' on broker 'broker-a'.*3 tries"
        ):
            await _rest(runs)


async def test_a_missing_queue_is_refused_at_once(cluster: Cluster, topic: str) -> None:
    await cluster.make_topic(topic, queues=1)
    async with reader(cluster, retry_pause_ms=60_000) as reading:
        await reading.queues(topic)
        with pytest.raises(QueueReadError, match=r"has no read queue 7.*1 try"):
            await collected(reading, [(queue_of(topic, 7), 0, 10)])


async def test_a_suggested_slave_is_used_and_abandoned_when_it_lags(
    cluster: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.make_topic(topic, queues=1)
    await fill(cluster, topic, 10)
    asked: list[int] = []
    async with reader(cluster) as reading:
        queue = queue_of(topic)
        reading._targets._suggested[queue] = 1
        address_of = reading._running().routes.address_of

        def spy(broker_name: str, broker_id: int, *, avoids_silent: bool = True) -> object:
            asked.append(broker_id)
            return address_of(broker_name, broker_id, avoids_silent=avoids_silent)

        await reading.queues(topic)
        monkeypatch.setattr(reading._running().routes, "address_of", spy)
        lost = await collected(reading, [(queue, 10, 11)])

    assert asked[:2] == [1, MASTER_ID]
    assert [run.is_lost for run in lost] == [True]


async def test_topics_and_present_queues_are_fresh(cluster: Cluster, topic: str) -> None:
    await cluster.make_topic(topic, queues=1)
    async with reader(cluster) as reading:
        assert topic in await reading.topics()
        assert await reading.server_names() == {"DefaultCluster", "broker-a"}
        assert len(await reading.present_queues(topic)) == 1

        await cluster.make_topic(topic, queues=3)

        assert len(await reading.present_queues(topic)) == 3
        with pytest.raises(RouteNotFoundError):
            await reading.present_queues("nobody")


async def test_a_namespace_is_put_before_topics(cluster: Cluster, topic: str) -> None:
    await cluster.make_topic(f"space%{topic}", queues=1)
    await cluster.make_topic(topic, queues=1)
    await send(cluster, f"space%{topic}", *"abc")
    async with reader(cluster, namespace="space") as reading:
        (queue,) = await reading.present_queues(topic)
        assert queue.topic == topic
        assert await reading.topics() == [topic]
        assert offsets(await collected(reading, [(queue, 0, 3)])) == [0, 1, 2]


async def test_a_reader_reads_only_between_start_and_stop(cluster: Cluster, topic: str) -> None:
    stopped = reader(cluster)
    with pytest.raises(StateError):
        await collected(stopped, [(queue_of(topic), 0, 1)])
    await stopped.start()
    await stopped.stop()
    await stopped.stop()
    with pytest.raises(StateError):
        await stopped.topics()


async def test_pulls_name_a_group_that_every_broker_has(cluster: Cluster, topic: str) -> None:
    await cluster.stop_broker()
    await cluster.start_broker(autoCreateSubscriptionGroup="false")
    await cluster.make_topic(topic, queues=1)
    await fill(cluster, topic, 5)
    async with reader(cluster) as reading:
        assert offsets(await collected(reading, [(queue_of(topic), 0, 5)])) == [*range(5)]


# --- blocking -----------------------------------------------------------------------------------


async def test_the_blocking_reader_gives_the_same(cluster: Cluster, topic: str) -> None:
    await cluster.make_topic(topic, queues=1)
    await fill(cluster, topic, 600, size=1000)

    def read() -> list[RecordRun]:
        with BlockingRecordReader(namesrv=cluster.namesrv, pull_bytes_max=50_000) as reading:
            (queue,) = reading.present_queues(topic)
            assert topic in reading.topics()
            early = reading.read([(queue, 0, 600)])
            next(early)
            early.close()  # type: ignore[attr-defined]  # a generator
            return list(reading.read([(queue, 0, reading.max_offset(queue))]))

    runs = await asyncio.to_thread(read)

    check_cover(runs, 0, 600)
    assert offsets(runs) == [*range(600)]
