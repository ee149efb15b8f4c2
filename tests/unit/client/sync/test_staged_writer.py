"""The blocking staged writer, from a thread without an event loop."""

from __future__ import annotations

import pytest

from orbitmq.client.aio.sending.staged_writer import new_write_id
from orbitmq.client.sync.staged_writer import StagedWriter
from orbitmq.embedded import Cluster
from orbitmq.errors import StateError
from orbitmq.model.queues import MessageQueue
from orbitmq.protocol.requests.staged_writes import BatchDecision, Part
from orbitmq.record.batch import BatchedMessage, encode_batch

ROWS = encode_batch(BatchedMessage(0, b"%d" % number, b"") for number in range(3))
QUEUE = MessageQueue(broker_name="broker-a", queue_id=0, topic="orders")


def test_rows_are_staged_and_committed() -> None:
    write_id = new_write_id()
    with Cluster(in_memory=True) as cluster:
        cluster.create_topic("orders", queues=1)
        with StagedWriter(namesrv=cluster.namesrv) as writer:
            futures = [
                writer.stage_async(QUEUE, ROWS, write_id=write_id, first_sequence=first)
                for first in (0, 3)
            ]
            replies = [future.result(60) for future in futures]
            seen_before = cluster.message_count("orders")
            part = Part(
                writes={write_id: 6},
                start=min(reply.start for reply in replies),
                end=max(reply.end for reply in replies),
            )

            status = writer.commit(BatchDecision(query="q", batch=0, parts={"broker-a": part}))

        assert status.complete
        assert (seen_before, cluster.message_count("orders")) == (0, 6)


def test_pending_stages_end_with_the_writer() -> None:
    # Nobody listens there: it would be retried until its timeout.
    with StagedWriter(namesrv="127.0.0.1:1") as writer:
        future = writer.stage_async(QUEUE, ROWS, write_id=new_write_id(), first_sequence=0)

    assert future.cancelled()
    with pytest.raises(StateError, match="stopped"):
        writer.stage_async(QUEUE, ROWS, write_id=new_write_id(), first_sequence=0)
