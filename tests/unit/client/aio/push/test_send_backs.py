"""The copy that a client sends when a broker does not take a message back."""

from __future__ import annotations

from orbitmq.client.aio.push.send_backs import retry_copy
from tests.unit.client.aio.received import received


def test_a_copy_carries_the_origin_and_the_retries_of_a_message() -> None:
    message = received(
        5,
        b"a body",
        properties={"TAGS": "T", "own": "value", "TRAN_MSG": "true"},
        reconsume_times=2,
    )

    copy = retry_copy(message, "billing", retries_max=16)

    assert (copy.topic, copy.body, copy.flag) == ("%RETRY%billing", b"a body", message.flag)
    assert copy.reserved_properties == {
        "UNIQ_KEY": "id-5",
        "TAGS": "T",
        "own": "value",
        "ORIGIN_MESSAGE_ID": message.offset_message_id,
        "RETRY_TOPIC": "orders",
        "RECONSUME_TIME": "3",
        "MAX_RECONSUME_TIMES": "16",
        "DELAY": "5",
    }


def test_a_copy_of_a_retried_message_keeps_its_origin() -> None:
    message = received(
        5,
        topic="%RETRY%billing",
        properties={"RETRY_TOPIC": "orders", "ORIGIN_MESSAGE_ID": "first"},
        reconsume_times=1,
    )

    copy = retry_copy(message, "billing", retries_max=3)

    assert copy.reserved_properties["RETRY_TOPIC"] == "orders"
    assert copy.reserved_properties["ORIGIN_MESSAGE_ID"] == "first"
