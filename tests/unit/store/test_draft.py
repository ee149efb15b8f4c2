"""Messages on their way into the store."""

from __future__ import annotations

import pytest

from orbitmq.errors import MessageError
from orbitmq.model.queues import PhysicalOffset, QueueOffset
from orbitmq.record.hosts import encode_host
from orbitmq.record.layout import SystemFlag
from orbitmq.store.draft import Draft, Durability, Receipt

V4, V6 = encode_host("10.0.0.1", 1), encode_host("::1", 1)


def test_the_topic_comes_back_as_bytes() -> None:
    assert Draft(topic="zażółć", body=b"").checked_topic(10) == "zażółć".encode()


@pytest.mark.parametrize(
    ("draft", "reason"),
    [
        (Draft(topic="", body=b""), "a topic of 0 bytes"),
        (Draft(topic="t" * 256, body=b""), "a topic of 256 bytes"),
        (Draft(topic="a/b", body=b""), "name of a folder"),
        (Draft(topic="..", body=b""), "name of a folder"),
        (Draft(topic="a\0b", body=b""), "name of a folder"),
        (Draft(topic="t", queue_id=-1, body=b""), "no queue -1"),
        (Draft(topic="t", body=bytes(11)), "above the limit of 10"),
        (Draft(topic="t", body=b"", properties=b"x" * 32768), "above 32767"),
        (Draft(topic="t", body=b"", properties=b"a\x01b\0\x02"), "hold a zero byte"),
    ],
)
def test_what_cannot_be_stored_is_refused_with_its_reason(draft: Draft, reason: str) -> None:
    with pytest.raises(MessageError, match=reason):
        draft.checked_topic(10)


def test_the_flag_tells_how_long_the_hosts_are_whatever_the_producer_says() -> None:
    both = int(SystemFlag.BORN_HOST_V6 | SystemFlag.STORE_HOST_V6)
    draft = Draft(topic="t", body=b"", system_flag=both | SystemFlag.COMPRESSED)

    assert draft.record_flag(V4) == SystemFlag.COMPRESSED
    assert draft.record_flag(V6) == SystemFlag.COMPRESSED | SystemFlag.STORE_HOST_V6
    assert Draft(topic="t", body=b"", born_host=V6).record_flag(V4) == SystemFlag.BORN_HOST_V6


def test_a_receipt_knows_where_its_record_ends() -> None:
    receipt = Receipt(
        physical_offset=PhysicalOffset(100),
        record_bytes=50,
        queue_offset=QueueOffset(0),
        store_ms=0,
        message_id="",
        durability=Durability.MEMORY,
    )

    assert receipt.end == 150
