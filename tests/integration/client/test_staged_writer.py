"""The staged writer against a cluster of two brokers, of which one dies."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable

import pytest

from orbitmq.client.aio import Admin, PullConsumer
from orbitmq.client.aio.sending.staged_writer import StagedWriter, new_write_id
from orbitmq.embedded import Cluster
from orbitmq.errors import BatchConflictError, CommitError
from orbitmq.model.queues import MessageQueue
from orbitmq.protocol.requests.staged_writes import BatchDecision, ForgetQuery, Part
from orbitmq.record.batch import BatchedMessage, encode_batch
from tests.integration.conftest import PATIENCE_MS

BROKERS = ("broker-a", "broker-b")


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with Cluster(brokers=2, in_memory=True) as cluster:
        await asyncio.to_thread(cluster.create_topic, "orders", queues=2)
        yield cluster


@pytest.fixture
async def writer(cluster: Cluster) -> AsyncIterator[StagedWriter]:
    async with StagedWriter(namesrv=cluster.namesrv) as writer:
        yield writer


def packed(bodies: Iterable[bytes]) -> bytes:
    return encode_batch(BatchedMessage(0, body, b"") for body in bodies)


async def staged_at_both(writer: StagedWriter, batch: int, rows: int) -> BatchDecision:
    """Stage rows of one write, half of them at each broker."""
    write_id = new_write_id()
    parts: dict[str, Part] = {}
    for index, name in enumerate(BROKERS):
        numbers = range(index, rows, 2)
        reply = await writer.stage(
            MessageQueue(topic="orders", broker_name=name, queue_id=1),
            packed(b"%d/%d" % (batch, number) for number in numbers),
            write_id=write_id,
            first_sequence=index * rows,
        )
        parts[name] = Part(writes={write_id: len(numbers)}, start=reply.start, end=reply.end)
    return BatchDecision(query="q", batch=batch, parts=parts)


async def bodies(cluster: Cluster) -> Counter[bytes]:
    found: Counter[bytes] = Counter()
    async with PullConsumer("auditors", namesrv=cluster.namesrv) as consumer:
        for queue in await consumer.queues("orders"):
            offset = 0
            while messages := (await consumer.pull(queue, "*", offset)).messages:
                found.update(message.body for message in messages)
                offset += len(messages)
    return found


def once(batches: int, rows: int) -> Counter[bytes]:
    return Counter(b"%d/%d" % (batch, number) for batch in range(batches) for number in range(rows))


async def test_batches_are_visible_once_at_every_broker(
    cluster: Cluster, writer: StagedWriter
) -> None:
    for batch in range(3):
        decision = await staged_at_both(writer, batch, 10)
        status = await writer.commit(decision)
        assert status.complete
        assert status.counts

    assert await bodies(cluster) == once(3, 10)


async def test_of_two_concurrent_commits_one_counts_for_both_drivers(
    cluster: Cluster, writer: StagedWriter
) -> None:
    decisions = [await staged_at_both(writer, 0, 10) for _ in range(2)]

    statuses = await asyncio.gather(*(writer.commit(decision) for decision in decisions))

    assert all(status.complete for status in statuses)
    assert sorted(bool(status.counts) for status in statuses) == [False, True]
    assert await bodies(cluster) == once(1, 10)


@pytest.mark.parametrize("victim", BROKERS)
async def test_a_batch_whose_broker_dies_is_completed_when_the_broker_is_back(
    cluster: Cluster, writer: StagedWriter, victim: str
) -> None:
    await writer.commit(await staged_at_both(writer, 0, 10))
    decision = await staged_at_both(writer, 1, 10)
    await asyncio.to_thread(cluster.faults.kill_broker, victim)

    with pytest.raises(CommitError, match="batch 1 of query 'q'"):
        await writer.commit(decision, timeout_ms=5_000)
    await asyncio.to_thread(cluster.faults.restart_broker, victim)
    # The driver was killed, too: the batch is written and committed again.
    replayed = await staged_at_both(writer, 1, 10)
    status = await writer.commit(replayed, timeout_ms=PATIENCE_MS)

    assert status.complete
    # The coordinator is the first broker: while it was down, nobody learned of the first decision.
    assert status.counts is (victim == BROKERS[0])
    assert await bodies(cluster) == once(2, 10)


async def test_a_replay_while_other_brokers_are_up_waits_for_the_coordinator(
    cluster: Cluster, writer: StagedWriter
) -> None:
    await asyncio.to_thread(cluster.faults.kill_broker, "broker-b")
    write_id = new_write_id()
    reply = await writer.stage(
        MessageQueue(topic="orders", broker_name="broker-a", queue_id=1),
        packed([b"0/0"]),
        write_id=write_id,
        first_sequence=0,
    )
    part = Part(writes={write_id: 1}, start=reply.start, end=reply.end)
    await writer.commit(BatchDecision(query="q", batch=0, parts={"broker-a": part}))
    await asyncio.to_thread(cluster.faults.restart_broker, "broker-b")
    await asyncio.to_thread(cluster.faults.kill_broker, "broker-a")

    with pytest.raises(CommitError, match="batch 0 of query 'q'"):
        await writer.commit(BatchDecision(query="q", batch=0, parts={}), timeout_ms=5_000)
    await asyncio.to_thread(cluster.faults.restart_broker, "broker-a")

    status = await writer.commit(
        BatchDecision(query="q", batch=0, parts={}), timeout_ms=PATIENCE_MS
    )
    assert status.complete
    assert await bodies(cluster) == once(1, 1)


async def test_a_query_forgotten_at_its_coordinator_only_fails_with_advice(
    cluster: Cluster, writer: StagedWriter
) -> None:
    await writer.commit(await staged_at_both(writer, 4, 10))
    async with Admin(namesrv=cluster.namesrv) as admin:
        coordinator = (await admin.brokers.addresses())["broker-a"]
        await admin._running().rpc.call(coordinator, ForgetQuery(query="q"), timeout_ms=3_000)

        with pytest.raises(BatchConflictError, match=r"broker-b: .*query forget q --force"):
            await writer.commit(await staged_at_both(writer, 2, 10))

        assert await admin.queries.forget("q", force=True) == ["broker-a", "broker-b"]
    await writer.commit(await staged_at_both(writer, 2, 10))
    # The part of broker-a was moved before broker-b refused its own.
    assert (await bodies(cluster))[b"2/1"] == 1
