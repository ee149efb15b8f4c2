"""Messages as send requests carry them: properties, body and flags."""

from __future__ import annotations

from typing import Any

import pytest

from orbitmq.client.core.sending.encoded_messages import EncodedMessages
from orbitmq.client.core.sending.outgoing import CompressionPolicy, MessagePreparer, Outgoing
from orbitmq.errors import MessageError, MessageTypeError, NameRuleError
from orbitmq.model.messages import Message
from orbitmq.model.unique_ids import UniqueIds
from orbitmq.record.batch import decode_batch
from orbitmq.record.compression import Compression, decompress
from orbitmq.record.properties import decode_properties


def _preparer(**arguments: Any) -> MessagePreparer:
    return MessagePreparer(UniqueIds("127.0.0.1", lambda: 1_700_000_000_000), **arguments)


def _read(outgoing: Outgoing) -> dict[str, str]:
    return decode_properties(outgoing.properties.encode())


def test_all_parts_of_a_message_are_sent() -> None:
    message = Message(
        "orders",
        "größe",
        tags="paid",
        keys="one,two",
        flag=-3,
        delay_level=5,
        wait_store_ok=False,
        sharding_key="customer",
        properties={"colour": "blå"},
    )

    outgoing = _preparer().prepare(message)

    assert (outgoing.topic, outgoing.body) == ("orders", "größe".encode())
    assert (outgoing.flag, outgoing.system_flag, outgoing.is_batch) == (-3, 0, False)
    assert _read(outgoing) == {
        "UNIQ_KEY": outgoing.message_id,
        "TAGS": "paid",
        "KEYS": "one two",
        "DELAY": "5",
        "WAIT": "false",
        "__SHARDINGKEY": "customer",
        "colour": "blå",
    }


def test_a_plain_message_has_only_its_id_as_property() -> None:
    outgoing = _preparer().prepare(Message("orders", b"body"))

    assert len(outgoing.message_id) == 32
    assert outgoing.properties == f"UNIQ_KEY\x01{outgoing.message_id}\x02"
    assert (outgoing.retries, outgoing.retries_max) == (None, None)


def test_every_message_has_an_id_of_its_own() -> None:
    preparer = _preparer()
    message = Message("orders", b"body")

    ids = {preparer.prepare(message).message_id for _ in range(100)}

    assert len(ids) == 100


def test_a_namespace_prefixes_the_topic_and_becomes_a_property() -> None:
    outgoing = _preparer(namespace="tenant").prepare(Message("orders", b"body"))

    assert outgoing.topic == "tenant%orders"
    assert _read(outgoing)["INSTANCE_ID"] == "tenant"


@pytest.mark.parametrize("kind", Compression)
def test_a_large_body_is_compressed(kind: Compression) -> None:
    body = b"again and again " * 1000
    preparer = _preparer(compression=CompressionPolicy(kind=kind, body_bytes_min=len(body)))

    outgoing = preparer.prepare(Message("orders", body))

    assert outgoing.system_flag == 1 | kind.value
    assert len(outgoing.body) < len(body)
    assert decompress(outgoing.body, outgoing.system_flag) == body


def test_a_small_body_is_not_compressed() -> None:
    body = b"x" * 4095

    outgoing = _preparer().prepare(Message("orders", body))

    assert (outgoing.body, outgoing.system_flag) == (body, 0)


def test_a_body_that_compression_makes_longer_stays_as_it_is() -> None:
    preparer = _preparer(compression=CompressionPolicy(body_bytes_min=1))

    outgoing = preparer.prepare(Message("orders", b"xy"))

    assert (outgoing.body, outgoing.system_flag) == (b"xy", 0)


def test_compressing_a_large_body_takes_long() -> None:
    large = Message("orders", bytes(100_000))

    assert _preparer().takes_long(large)
    assert not _preparer().takes_long(Message("orders", bytes(5000)))
    assert not _preparer().takes_long([large])
    assert not _preparer(compression=CompressionPolicy(body_bytes_min=200_000)).takes_long(large)


def test_a_half_message_has_the_flag() -> None:
    half = Message("orders", b"body").with_reserved({"TRAN_MSG": "true", "PGROUP": "group"})

    outgoing = _preparer().prepare(half)

    assert outgoing.system_flag == 4
    assert _read(outgoing).items() >= {"TRAN_MSG": "true", "PGROUP": "group"}.items()


def test_retries_go_into_fields_of_the_request() -> None:
    reserved = {"RECONSUME_TIME": "3", "MAX_RECONSUME_TIMES": "16", "RETRY_TOPIC": "orders"}
    again = Message("%RETRY%billing", b"body").with_reserved(reserved)

    outgoing = _preparer().prepare(again)

    assert (outgoing.retries, outgoing.retries_max) == (3, 16)
    assert _read(outgoing) == {"UNIQ_KEY": outgoing.message_id, "RETRY_TOPIC": "orders"}


def test_retries_stay_properties_for_other_topics() -> None:
    message = Message("orders", b"body").with_reserved({"RECONSUME_TIME": "3"})

    outgoing = _preparer().prepare(message)

    assert outgoing.retries is None
    assert _read(outgoing)["RECONSUME_TIME"] == "3"


def test_a_message_that_has_an_id_keeps_it() -> None:
    message = Message("orders", b"body").with_reserved({"UNIQ_KEY": "MINE"})

    outgoing = _preparer().prepare(message)
    batch = _preparer().prepare([message, message])

    assert outgoing.message_id == "MINE"
    assert outgoing.properties == "UNIQ_KEY\x01MINE\x02"
    assert batch.message_id == "MINE,MINE"


def test_a_batch_holds_each_message_with_its_properties() -> None:
    messages = [
        Message("orders", b"one", tags="a", flag=1),
        Message("orders", b"x" * 5000, keys="k", flag=2),
    ]

    outgoing = _preparer(namespace="tenant").prepare(messages)

    assert (outgoing.topic, outgoing.is_batch, outgoing.system_flag) == ("tenant%orders", True, 0)
    first_id, second_id = outgoing.message_id.split(",")
    first, second = decode_batch(outgoing.body)
    assert (first.flag, first.body) == (1, b"one")
    assert (second.flag, second.body) == (2, b"x" * 5000)
    assert decode_properties(first.properties) == {
        "UNIQ_KEY": first_id,
        "TAGS": "a",
        "INSTANCE_ID": "tenant",
    }
    assert decode_properties(second.properties)["UNIQ_KEY"] == second_id
    # 4.9 brokers would replace their ids with an id of the batch.
    assert set(_read(outgoing)) == {"INSTANCE_ID"}


def test_a_batch_that_does_not_wait_says_so() -> None:
    messages = [Message("orders", b"one", wait_store_ok=False)] * 2

    assert _read(_preparer().prepare(tuple(messages)))["WAIT"] == "false"


def test_an_encoded_batch_above_the_limit_is_refused() -> None:
    messages = [Message("orders", b"123")] * 3

    with pytest.raises(
        MessageError, match=r"batch of .* bytes to orders is above the limit of 100"
    ):
        _preparer(body_bytes_max=100).prepare(messages)


def test_what_is_no_message_is_refused() -> None:
    generator: Any = (message for message in [Message("orders", b"one")])

    with pytest.raises(MessageTypeError, match="type generator; it takes a Message or a list"):
        _preparer().prepare(generator)
    with pytest.raises(MessageTypeError, match="type str"):
        _preparer().prepare("text")  # type: ignore[arg-type]  # what users try


def test_a_topic_is_checked_with_its_namespace() -> None:
    assert _preparer().prepare(Message("t" * 127, b"body")).topic == "t" * 127

    with pytest.raises(NameRuleError, match="at most 127"):
        _preparer(namespace="tenant").prepare(Message("t" * 127, b"body"))
    with pytest.raises(NameRuleError, match="blank"):
        _preparer().prepare([Message(" ", b"body")])


def test_properties_must_fit_a_record() -> None:
    fitting = Message("orders", b"body", properties={"a": "x" * 32_000})
    assert len(_preparer().prepare(fitting).properties) < 32_767

    for value in ("x" * 32_767, "å" * 16_384):
        with pytest.raises(MessageError, match=r"properties take .* bytes; 32767 fit"):
            _preparer().prepare(Message("orders", b"body", properties={"a": value}))


def test_half_a_character_in_a_property_is_refused() -> None:
    with pytest.raises(MessageError, match="half of a character"):
        _preparer().prepare(Message("orders", b"body", properties={"a": "\ud800"}))


def test_an_encoded_batch_is_sent_unchanged() -> None:
    outgoing = _preparer(namespace="tenant").prepare(EncodedMessages("orders", b"batch"))

    assert (outgoing.topic, outgoing.body, outgoing.is_batch) == ("tenant%orders", b"batch", True)
    assert _read(outgoing) == {"INSTANCE_ID": "tenant"}


def test_an_encoded_message_goes_with_its_properties_and_is_compressed() -> None:
    preparer = _preparer(compression=CompressionPolicy(Compression.ZLIB, body_bytes_min=100))
    encoded = EncodedMessages("orders", b"a" * 200, "UNIQ_KEY\x01A1\x02", -3, is_batch=False)

    outgoing = preparer.prepare(encoded)

    assert (outgoing.flag, outgoing.is_batch, outgoing.system_flag & 1) == (-3, False, 1)
    assert outgoing.properties == "UNIQ_KEY\x01A1\x02"
    assert decompress(outgoing.body, outgoing.system_flag) == b"a" * 200


@pytest.mark.parametrize(
    ("encoded", "reason"),
    [
        (EncodedMessages("orders", b"x" * 11), "batch of 11 bytes"),
        (EncodedMessages("orders", b"x" * 11, is_batch=False), "body of 11 bytes"),
        (EncodedMessages("orders", b"", is_batch=False), "empty body"),
    ],
)
def test_encoded_messages_of_a_wrong_size_are_refused(
    encoded: EncodedMessages, reason: str
) -> None:
    with pytest.raises(MessageError, match=reason):
        _preparer(body_bytes_max=10).prepare(encoded)


def test_only_large_messages_by_themselves_are_prepared_in_a_thread() -> None:
    body = b"x" * 100_000

    assert _preparer().takes_long(EncodedMessages("orders", body, is_batch=False))
    assert not _preparer().takes_long(EncodedMessages("orders", body))
