"""Results of sends: how safe a message is, and the results of a batch one by one."""

from __future__ import annotations

import pytest

from orbitmq.client.core.sending.send_results import (
    Durability,
    SendResult,
    SendStatus,
    durability_of,
)
from orbitmq.model.queues import MessageQueue

QUEUE = MessageQueue(topic="orders", queue_id=2, broker_name="broker-a")


def _result(message_id: str, offset_message_id: str) -> SendResult:
    return SendResult(
        status=SendStatus.OK,
        message_id=message_id,
        offset_message_id=offset_message_id,
        queue=QUEUE,
        queue_offset=40,
        region="DefaultRegion",
    )


@pytest.mark.parametrize(
    ("status", "reported", "durability"),
    [
        (SendStatus.OK, None, Durability.PROMISED),
        (SendStatus.OK, "DISK", Durability.DISK),
        (SendStatus.OK, "MEMORY", Durability.MEMORY),
        (SendStatus.OK, "elsewhere", Durability.PROMISED),
        (SendStatus.FLUSH_DISK_TIMEOUT, "DISK", Durability.MEMORY),
        (SendStatus.FLUSH_SLAVE_TIMEOUT, "DISK", Durability.MASTER),
        (SendStatus.FLUSH_SLAVE_TIMEOUT, None, Durability.MASTER),
        (SendStatus.SLAVE_NOT_AVAILABLE, None, Durability.MASTER),
    ],
)
def test_the_status_and_the_broker_say_how_safe_a_message_is(
    status: SendStatus, reported: str | None, durability: Durability
) -> None:
    assert durability_of(status, reported) is durability


def test_each_message_of_a_batch_has_its_ids_and_its_offset() -> None:
    results = _result("A,B,C", "1,2,3").each(3)

    assert [result.message_id for result in results] == ["A", "B", "C"]
    assert [result.offset_message_id for result in results] == ["1", "2", "3"]
    assert [result.queue_offset for result in results] == [40, 41, 42]
    assert {result.queue for result in results} == {QUEUE}
    assert {result.region for result in results} == {"DefaultRegion"}


def test_messages_of_a_batch_that_is_stored_whole_share_its_result() -> None:
    whole = _result("A,B", "1")

    assert whole.each(2) == [whole, whole]
