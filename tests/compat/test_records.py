"""Records, batches, ids and hashes whose bytes are known from the rules of RocketMQ.

They were computed by hand from the layout (not captured from a Java process): see "Test vectors"
in the protocol reference of the project's notes.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from orbitmq.java_hash import java_hash
from orbitmq.record import codec, encode, scan
from orbitmq.record.batch import BatchedMessage, decode_batch, encode_batch
from orbitmq.record.decode import decode_record
from orbitmq.record.hosts import encode_host
from orbitmq.record.message_id import decode_message_id, encode_message_id
from orbitmq.record.properties import encode_properties

RECORD = bytes.fromhex(
    "00000068daa320a758932aac0000000100000000000000000000000700000000000003e800000000"
    "0000018bcfe568007f0000010000c3500000018bcfe5687b7f00000100002a9f0000000000000000"
    "000000000000000268690154000a54414753015461674102"
)


@pytest.mark.parametrize("write", [encode.encode_record, codec.encode_record])
def test_a_record_is_written_as_java_writes_it(write: Callable[..., int]) -> None:
    buffer = bytearray(104)

    size = write(
        buffer,
        0,
        topic=b"T",
        queue_id=1,
        queue_offset=7,
        physical_offset=1000,
        body=b"hi",
        properties=encode_properties({"TAGS": "TagA"}),
        flag=0,
        system_flag=0,
        born_ms=1700000000000,
        born_host=encode_host("127.0.0.1", 50000),
        store_ms=1700000000123,
        store_host=encode_host("127.0.0.1", 10911),
        reconsume_times=0,
        prepared_offset=0,
    )

    assert size == 104
    assert buffer == RECORD
    assert decode_record(buffer).properties == {"TAGS": "TagA"}


@pytest.mark.parametrize("walk", [scan.walk, codec.walk])
def test_a_record_gets_the_queue_entry_that_java_writes(walk: Callable[..., scan.Walk]) -> None:
    found = walk(RECORD, 0, 104, 1000, check_body=True, delay_levels_ms=(), with_keys=True)

    # physical offset 1000, 104 bytes, hash of TagA
    assert found.runs == {
        (b"T", 1): [
            scan.EntryRun(7, bytearray.fromhex("00000000000003e8 00000068 000000000027a807"))
        ]
    }


def test_a_batch_is_written_as_java_writes_it() -> None:
    batch = bytes.fromhex(
        "00000022 00000000 00000000 00000000 00000002 6869 000a 54414753015461674102"
    )
    message = BatchedMessage(0, b"hi", b"TAGS\x01TagA\x02")

    assert encode_batch([message]) == batch
    assert decode_batch(batch) == [message]


def test_an_id_is_written_as_java_writes_it() -> None:
    message_id = "C0A8010A00002A9F000000000001E240"

    assert encode_message_id(encode_host("192.168.1.10", 10911), 123456) == message_id
    assert decode_message_id(message_id) == ("192.168.1.10", 10911, 123456)


@pytest.mark.parametrize(
    ("tag", "hashed"),
    [
        ("TagA", 2598919),
        ("TagB", 2598920),
        ("中文", 646394),
        ("polygenelubricants", -2147483648),
    ],
)
def test_a_tag_hashes_as_in_java(tag: str, hashed: int) -> None:
    assert java_hash(tag) == hashed
    assert scan.hash_tag(tag.encode()) == hashed
