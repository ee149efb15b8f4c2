"""Received messages equal the decoded record, in any order of access."""

from __future__ import annotations

import pickle  # noqa: TID251  # multiprocessing sends messages so
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.client.core.consuming.received_message import ReceivedMessage, received_messages
from orbitmq.errors import ProtocolError
from orbitmq.model.queues import MessageQueue
from orbitmq.record.compression import Compression, compress
from orbitmq.record.decode import decode_records
from orbitmq.record.layout import COMPRESSED, SystemFlag
from orbitmq.record.properties import encode_properties
from tests.unit.record.sample_records import KNOWN, Sample, samples

ORDER = replace(
    KNOWN,
    topic=b"orders",
    body=b"a body",
    flag=9,
    reconsume_times=2,
    prepared_offset=77,
    properties=encode_properties(
        {"TAGS": "paid", "KEYS": "one two", "UNIQ_KEY": "ABC", "colour": "blå", "DELAY": "3"}
    ),
)


def _one(sample: Sample, *, namespace: str = "") -> ReceivedMessage:
    (message,) = received_messages(sample.encode(), "broker-a", namespace=namespace)
    return message


def test_a_message_has_the_fields_of_its_producer() -> None:
    message = _one(ORDER)

    assert (message.topic, message.body, message.tags) == ("orders", b"a body", "paid")
    assert message.keys == ("one", "two")
    assert (message.flag, message.delay_level) == (9, 3)
    assert message.properties["colour"] == "blå"
    assert message.born_ms == 1700000000000
    assert message.born_host == ("127.0.0.1", 50000)
    assert message.message_id == "ABC"


OF_ONE_COPY = """
    UNIQ_KEY WAIT DELAY REAL_TOPIC REAL_QID TRAN_MSG PGROUP TIMER_DELAY_SEC TIMER_DELAY_MS
    TIMER_DELIVER_MS TIMER_ENQUEUE_MS TIMER_DEQUEUE_MS TIMER_ROLL_TIMES TIMER_ROLL_LABEL TIMER_OUT_MS
    TIMER_DEL_UNIQKEY TIMER_DELAY_LEVEL ORIGIN_MESSAGE_ID RECONSUME_TIME MAX_RECONSUME_TIMES
    __transactionId__ TRAN_PREPARED_QUEUE_OFFSET CLUSTER MSG_REGION TRACE_ON __RMQ.TRANSIENT.x
    REPLY_TO_CLIENT INNER_NUM
"""


def test_a_message_that_is_sent_on_keeps_what_is_the_users() -> None:
    own = {"TAGS": "paid", "KEYS": "one two", "__SHARDINGKEY": "s", "colour": "blå"}
    properties = own | dict.fromkeys(OF_ONE_COPY.split(), "1")

    copy = _one(replace(ORDER, properties=encode_properties(properties))).as_message("audit")

    assert (copy.topic, copy.body, copy.flag) == ("audit", b"a body", 9)
    assert (copy.tags, copy.keys, copy.sharding_key) == ("paid", ("one", "two"), "s")
    assert copy.properties == {"colour": "blå"}
    assert (copy.delay_level, copy.reserved_properties) == (0, {})


@pytest.mark.parametrize("topic", [b"orders", b"%RETRY%group", b"%DLQ%group"])
def test_a_message_is_sent_on_to_its_first_topic_unless_told_otherwise(topic: bytes) -> None:
    origin = {} if topic == b"orders" else {"RETRY_TOPIC": "orders"}
    message = _one(replace(ORDER, topic=topic, properties=encode_properties(origin)))

    assert message.as_message().topic == "orders"


def test_a_dead_letter_is_sent_on_within_its_namespace() -> None:
    properties = encode_properties({"RETRY_TOPIC": "shop%orders"})
    message = _one(
        replace(ORDER, topic=b"%DLQ%shop%group", properties=properties), namespace="shop"
    )

    assert message.as_message().topic == "orders"


def test_a_message_has_the_fields_of_its_broker() -> None:
    message = _one(ORDER)

    assert message.queue == MessageQueue(topic="orders", queue_id=1, broker_name="broker-a")
    assert (message.queue_id, message.broker_name) == (1, "broker-a")
    assert (message.queue_offset, message.physical_offset) == (7, 1000)
    assert message.store_ms == 1700000000123
    assert message.store_host == ("127.0.0.1", 10911)
    assert message.offset_message_id == "7F00000100002A9F00000000000003E8"
    assert (message.reconsume_times, message.prepared_offset) == (2, 77)


def test_a_message_that_its_consumer_keeps_counts_its_retries() -> None:
    message = _one(ORDER)

    message.count_retry()
    message.count_retry()

    assert (message.reconsume_times, message.prepared_offset, message.body) == (4, 77, b"a body")
    assert message.system_flag == 0
    assert message.size == len(ORDER.encode())


def test_a_message_without_properties_has_empty_ones() -> None:
    message = _one(replace(ORDER, properties=b""))

    assert (message.tags, message.keys, message.delay_level) == ("", (), 0)
    assert message.properties == {}
    assert message.message_id == message.offset_message_id


def test_properties_read_one_by_one_equal_those_read_together() -> None:
    apart, together = _one(ORDER), _one(ORDER)

    assert together.properties["TAGS"] == "paid"

    for message in (apart, together):
        assert (message.tags, message.keys, message.message_id) == ("paid", ("one", "two"), "ABC")


def test_the_order_of_access_changes_no_value() -> None:
    known = _one(ORDER)
    parts = [name for name, part in vars(ReceivedMessage).items() if isinstance(part, property)]
    assert len(parts) > 15
    for name in parts:
        getattr(known, name)

    assert {name: getattr(_one(ORDER), name) for name in parts} == {
        name: getattr(known, name) for name in parts
    }


def test_properties_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        _one(ORDER).properties["colour"] = "red"  # type: ignore[index]  # what a user may try


@pytest.mark.parametrize("kind", Compression)
def test_a_compressed_body_is_decompressed(kind: Compression) -> None:
    body = b"again and again " * 100
    packed = compress(body, kind)
    message = _one(replace(ORDER, body=packed, system_flag=COMPRESSED | kind.value))

    assert message.body == body
    assert message.body is message.body
    assert message.tags == "paid"


def test_an_empty_body_is_never_decompressed() -> None:
    assert _one(replace(ORDER, body=b"", system_flag=COMPRESSED)).body == b""


def test_a_retried_message_shows_the_topic_it_was_sent_to() -> None:
    again = replace(
        ORDER,
        topic=b"%RETRY%billing",
        properties=encode_properties({"RETRY_TOPIC": "orders"}),
    )

    message = _one(again)

    assert message.topic == "orders"
    assert message.queue.topic == "%RETRY%billing"
    assert _one(replace(again, properties=b"")).topic == "%RETRY%billing"
    assert _one(replace(again, topic=b"%DLQ%billing")).topic == "%DLQ%billing"


def test_a_namespace_is_removed_from_the_queue_that_users_see() -> None:
    message = _one(replace(ORDER, topic=b"tenant%orders"), namespace="tenant")
    half = _one(
        replace(ORDER, topic=b"tenant%orders", system_flag=int(SystemFlag.PREPARED)),
        namespace="tenant",
    )

    for each in (message, half, pickle.loads(pickle.dumps(message))):
        assert each.queue.topic == "orders"
        assert each.stored_queue.topic == "tenant%orders"
        assert each.topic == "orders"
    assert _one(ORDER).stored_queue == _one(ORDER).queue


def test_a_namespace_is_removed_from_the_topic() -> None:
    again = encode_properties({"RETRY_TOPIC": "tenant%orders"})
    retried = replace(ORDER, topic=b"%RETRY%tenant%billing", properties=again)

    assert _one(replace(ORDER, topic=b"tenant%orders"), namespace="tenant").topic == "orders"
    assert _one(retried, namespace="tenant").topic == "orders"


def test_a_tag_that_is_not_utf_8_is_read_with_replacements() -> None:
    assert _one(replace(ORDER, properties=b"TAGS\x01\xff\x02")).tags == "\ufffd"


def test_a_delay_level_that_is_not_a_number_is_0() -> None:
    assert _one(replace(ORDER, properties=b"DELAY\x01x\x02")).delay_level == 0


def test_messages_of_many_queues_come_in_the_order_of_their_records() -> None:
    several = [
        replace(ORDER, queue_id=queue_id, queue_offset=queue_offset)
        for queue_id, queue_offset in [(0, 5), (1, 9), (0, 6), (0, 8), (1, 10)]
    ]

    messages = received_messages(b"".join(each.encode() for each in several), "broker-a")

    places = [(message.queue_id, message.queue_offset) for message in messages]
    assert places == [(0, 5), (1, 9), (0, 6), (0, 8), (1, 10)]


def test_half_messages_are_found_too() -> None:
    half = replace(ORDER, system_flag=int(SystemFlag.PREPARED), queue_offset=3)

    messages = received_messages(ORDER.encode() + half.encode(), "broker-a")

    assert [message.queue_offset for message in messages] == [7, 3]
    assert messages[1].body == b"a body"


def test_no_bytes_are_no_messages() -> None:
    assert received_messages(b"", "broker-a") == []


@pytest.mark.parametrize(
    ("rest", "problem"),
    [
        (b"\x01", "a record that is cut off"),
        (b"\x01" * 200, "bytes that are not a record"),
    ],
)
def test_bytes_that_are_not_a_record_are_refused(rest: bytes, problem: str) -> None:
    whole = ORDER.encode()

    with pytest.raises(ProtocolError, match=f"broker-a at byte {len(whole)} of .*: {problem}"):
        received_messages(whole + rest, "broker-a")


def test_a_message_takes_its_own_bytes_alone_to_another_process() -> None:
    body = (ORDER.encode() * 100) + replace(ORDER, body=b"last").encode()
    message = received_messages(body, "broker-a", namespace="tenant")[-1]

    pickled = pickle.dumps(message)

    assert len(pickled) < 1000
    other = pickle.loads(pickled)
    assert (other.body, other.queue, other.queue_offset) == (b"last", message.queue, 7)
    assert other.properties == message.properties


def test_a_message_shows_itself_without_its_body() -> None:
    size = len(ORDER.encode())
    expected = f"<ReceivedMessage ABC topic='orders', queue 1 of 'broker-a' at 7, {size} bytes>"

    assert repr(_one(ORDER)) == expected


@given(st.lists(samples(), max_size=5))
def test_every_field_is_that_of_the_decoded_record(several: list[Sample]) -> None:
    plain = [replace(each, system_flag=each.system_flag & ~COMPRESSED) for each in several]
    body = b"".join(each.encode() for each in plain)

    messages = received_messages(body, "broker-a")

    expected = decode_records(body)
    assert len(messages) == len(expected)
    for message, stored in zip(messages, expected, strict=True):
        assert message.queue.topic == stored.topic
        assert message.body == stored.body
        assert message.properties == stored.properties
        assert message.offset_message_id == stored.message_id
        assert message.born_host == stored.born_host
        assert message.store_host == stored.store_host
        for name in (
            "size",
            "queue_id",
            "flag",
            "queue_offset",
            "physical_offset",
            "system_flag",
            "born_ms",
            "store_ms",
            "reconsume_times",
            "prepared_offset",
        ):
            assert getattr(message, name) == getattr(stored, name), name
