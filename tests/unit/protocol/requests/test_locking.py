"""Requests that lock queues: bodies as Java writes them."""

from __future__ import annotations

from orbitmq import java_json
from orbitmq.model.queues import MessageQueue
from orbitmq.protocol.requests.locking import LockedQueues, LockQueues, QueuesToLock, UnlockQueues

QUEUE = MessageQueue(broker_name="b", queue_id=0, topic="T")


def test_requests_have_codes_and_no_fields() -> None:
    assert (LockQueues.CODE, UnlockQueues.CODE) == (41, 42)
    assert LockQueues().encode() == UnlockQueues().encode() == {}


def test_the_queues_to_lock_are_written_as_java_writes_them() -> None:
    text = (
        b'{"clientId":"c","consumerGroup":"g","mqSet":[{"brokerName":"b","queueId":0,"topic":"T"}],'
        b'"onlyThisBroker":false}'
    )
    wanted = QueuesToLock(client_id="c", consumer_group="g", queues=[QUEUE])

    assert java_json.encode(wanted) == text
    assert java_json.decode(text, QueuesToLock) == wanted


def test_a_peer_that_knows_no_scope_means_every_broker() -> None:
    text = b'{"consumerGroup":"g","clientId":"c","mqSet":[]}'

    assert not java_json.decode(text, QueuesToLock).this_broker_only


def test_the_locked_queues_come_back() -> None:
    text = b'{"lockOKMQSet":[{"brokerName":"b","queueId":0,"topic":"T"}]}'

    assert java_json.encode(LockedQueues(queues=[QUEUE])) == text
    assert java_json.decode(text, LockedQueues).queues == [QUEUE]
