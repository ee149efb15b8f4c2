"""Producers send messages with a due time, and take them back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from orbitmq.client.aio.sending.producer import Producer
from orbitmq.client.sync.producer import Producer as BlockingProducer
from orbitmq.errors import MessageError, RecallHandleError, RemoteError
from orbitmq.model.messages import Message
from orbitmq.record.decode import decode_record
from tests.integration.client.conftest import Cluster
from tests.waiting import until


async def test_a_message_is_recalled_and_others_are_delivered(
    cluster: Cluster, namesrv: str
) -> None:
    await cluster.make_topic("T", queues=1)
    store = cluster.brokers["broker-a"].store
    async with Producer(namesrv=namesrv) as producer:
        due = datetime.now(UTC) + timedelta(seconds=2.5)  # noqa: TID251
        first = await producer.send(Message("T", b"at", deliver_at=due))
        back = await producer.send(Message("T", b"back", delay=timedelta(seconds=2.5)))
        await producer.send(Message("T", b"after", delay=timedelta(seconds=2.6)))
        assert first.recall_handle is not None
        assert back.recall_handle is not None

        recalled = await producer.recall(back.recall_handle)
        await until(lambda: store.end_of("T", 0) >= 2)

        records = [decode_record(record) for record in store.read("T", 0, 0).records]
        assert recalled == back.message_id
        assert [record.body for record in records] == [b"at", b"after"]
        assert records[0].store_ms >= due.timestamp() * 1000
        with pytest.raises(RemoteError, match="comes too late"):
            await producer.recall(first.recall_handle)
        with pytest.raises(RecallHandleError):
            await producer.recall("nothing")


async def test_a_batch_takes_no_due_times(cluster: Cluster, namesrv: str) -> None:
    await cluster.make_topic("T", queues=1)
    async with Producer(namesrv=namesrv) as producer:
        with pytest.raises(MessageError, match="due time"):
            await producer.send([Message("T", b"a", delay=timedelta(seconds=2))])


def test_the_blocking_producer_recalls_like_the_other() -> None:
    assert BlockingProducer.recall.__doc__ == Producer.recall.__doc__
