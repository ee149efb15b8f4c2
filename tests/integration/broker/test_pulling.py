"""Pulls: where they may start, what they get, how long they wait, which are refused."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orbitmq.clock import ManualClock
from orbitmq.errors import ConnectError
from orbitmq.model.groups import GroupConfig
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import Command, request
from orbitmq.protocol.frame import Encoding, encode_frame
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.clients import Heartbeat
from orbitmq.protocol.requests.offsets import ResetOffsets
from orbitmq.protocol.requests.pulling import PullFlag, PullMessages, PullReply
from orbitmq.protocol.requests.sending import SendBatch
from orbitmq.record.batch import BatchedMessage, encode_batch
from orbitmq.record.decode import decode_records
from tests.integration.broker.conftest import (
    Peer,
    Site,
    heartbeat_body,
    pull_header,
    running,
    send_header,
)
from tests.integration.transport.raw_peer import RawPeer
from tests.waiting import until

PULL_NOT_FOUND = ResponseCode.PULL_NOT_FOUND
OFFSET_MOVED = ResponseCode.PULL_OFFSET_MOVED
RETRY = ResponseCode.PULL_RETRY_IMMEDIATELY


async def parked(site: Site, count: int = 1) -> None:
    await until(lambda: len(site.broker.parts.long_polls) == count)


# --- what is not in memory ---------------------------------------------------------------------


@pytest.mark.parametrize("readers", [["loop"], ["loop", "thread"]])
async def test_messages_past_the_mapping_are_read_at_once_or_later_in_a_thread(
    site: Site, peer: Peer, monkeypatch: pytest.MonkeyPatch, readers: list[str]
) -> None:
    await peer.send("T", b"one")
    await peer.send("T", b"two")
    monkeypatch.setattr("orbitmq.store.reading.queue_reader.MAPPED_READ_BYTES", 0)

    def preadv(descriptor: int, buffers: list[bytearray], at: int, _flags: int) -> int:
        if "thread" in readers:
            raise BlockingIOError
        (buffer,) = buffers
        buffer[:] = os.pread(descriptor, len(buffer), at)
        return len(buffer)

    monkeypatch.setattr("os.preadv", preadv)
    seen, read = list[str](), site.broker.store.read

    def spy(*arguments: Any, **named: Any) -> Any:
        is_loop = threading.current_thread() is threading.main_thread()
        seen.append("loop" if is_loop else "thread")
        return read(*arguments, **named)

    monkeypatch.setattr(site.broker.store, "read", spy)

    assert [m.body for m in await peer.read()] == [b"one", b"two"]
    assert seen == readers


# --- what is damaged ----------------------------------------------------------------------------


def _damage_entry(site: Site, number: int) -> None:
    """Let an entry of queue 0 of topic T lead nowhere."""
    queue = site.broker.store.parts.queues.find("T", 0)
    assert queue is not None
    site.broker.store.parts.queues.write()
    with (queue.folder / f"{0:020d}").open("r+b") as file:
        file.seek(number * 20)
        file.write(bytes([0x40]))


async def test_an_entry_that_leads_nowhere_hides_no_message(site: Site, peer: Peer) -> None:
    for body in (b"one", b"two", b"three"):
        await peer.send("T", body)
    _damage_entry(site, 1)

    assert [m.body for m in await peer.read()] == [b"one"]
    assert [m.body for m in await peer.read(offset=1)] == [b"two", b"three"]


async def test_a_damaged_message_is_refused_by_name_and_not_skipped(site: Site, peer: Peer) -> None:
    for body in (b"one", b"two"):
        await peer.send("T", body)
    site.broker.store.parts.log.files[0].view[4] ^= 0xFF

    replies = [await peer.pull() for _ in range(2)]

    assert [reply.code for reply in replies] == [ResponseCode.SYSTEM_ERROR] * 2
    assert "message 0 of topic 'T' queue 0" in (replies[0].remark or "")


# --- which fields a pull has --------------------------------------------------------------------

REQUIRED_FIELDS = {
    "consumerGroup": "g",
    "topic": "T",
    "queueId": "0",
    "queueOffset": "0",
    "maxMsgNums": "1",
    "sysFlag": str(int(PullFlag.SUBSCRIPTION)),
    "commitOffset": "0",
    "suspendTimeoutMillis": "0",
    "subVersion": "0",
}
OPTIONAL_FIELDS = {
    "subscription": "b",
    "expressionType": "TAG",
    "maxMsgBytes": "100000",
    "requestSource": "0",
    "proxyFrowardClientId": "c",
    "bname": "broker-a",
    "bulkCount": "10",
    "bulkBytes": "100000",
}
ALL_FIELDS = {**REQUIRED_FIELDS, **OPTIONAL_FIELDS}
NUMBERS = [name for name, text in ALL_FIELDS.items() if text.isdigit()]


def in_usual_order(fields: dict[str, str]) -> bytes:
    return Command(code=RequestCode.PULL_MESSAGE, fields=fields).encode()


def in_another_order(fields: dict[str, str]) -> bytes:
    """The hot path reads only headers whose first member is the code."""
    header = {"flag": 0, "language": "JAVA", "opaque": 0, "version": 479, "code": 11}
    return encode_frame(json.dumps({**header, "extFields": fields}).encode(), b"", Encoding.JSON)


def in_binary(fields: dict[str, str]) -> bytes:
    return Command(code=RequestCode.PULL_MESSAGE, fields=fields, encoding=Encoding.BINARY).encode()


WAYS = pytest.mark.parametrize("written", [in_usual_order, in_another_order, in_binary])


def without(name: str) -> dict[str, str]:
    return {other: text for other, text in ALL_FIELDS.items() if other != name}


def test_every_field_of_a_pull_is_covered() -> None:
    asked = PullMessages.decode(ALL_FIELDS)

    assert asked.encode() == ALL_FIELDS


@WAYS
async def test_a_pull_without_a_required_field_is_refused_with_its_name(
    site: Site, peer: Peer, written: Callable[[dict[str, str]], bytes]
) -> None:
    await peer.send("T", b"one")
    async with await RawPeer.connect(site.broker.port) as raw:
        for name in REQUIRED_FIELDS:
            await raw.send(written(without(name)))
            reply = await raw.read()

            assert reply.code == ResponseCode.SYSTEM_ERROR, name
            assert reply.remark.startswith(f"field {name!r} of PullMessages is missing"), name


@WAYS
@pytest.mark.parametrize(
    ("missing", "bodies"),
    [
        ("", [b"two", b"three"]),
        ("subscription", [b"one", b"two", b"three"]),
        ("expressionType", [b"two", b"three"]),
        ("maxMsgBytes", [b"two", b"three"]),
        ("requestSource", [b"two", b"three"]),
        ("proxyFrowardClientId", [b"two", b"three"]),
        ("bname", [b"two", b"three"]),
        ("bulkCount", [b"two"]),
        ("bulkBytes", [b"two"]),
    ],
)
async def test_a_pull_without_an_optional_field_is_answered(
    site: Site,
    peer: Peer,
    written: Callable[[dict[str, str]], bytes],
    missing: str,
    bodies: list[bytes],
) -> None:
    for body, tag in ((b"one", "a"), (b"two", "b"), (b"three", "b")):
        await peer.send("T", body, TAGS=tag)

    async with await RawPeer.connect(site.broker.port) as raw:
        await raw.send(written(without(missing)))
        reply = await raw.read()

    assert reply.code == ResponseCode.SUCCESS, reply.remark
    assert [message.body for message in decode_records(reply.body)] == bodies


@WAYS
async def test_a_pull_with_an_invalid_number_is_refused_with_its_name(
    site: Site, peer: Peer, written: Callable[[dict[str, str]], bytes]
) -> None:
    await peer.send("T", b"one")
    async with await RawPeer.connect(site.broker.port) as raw:
        for name in NUMBERS:
            await raw.send(written({**ALL_FIELDS, name: "many"}))
            reply = await raw.read()

            assert reply.code == ResponseCode.SYSTEM_ERROR, name
            assert reply.remark.startswith(f"field {name!r} of PullMessages is 'many'"), name


@WAYS
async def test_a_refused_pull_gets_the_reason_whichever_fields_it_lacks(
    site: Site, peer: Peer, written: Callable[[dict[str, str]], bytes]
) -> None:
    await peer.send("T", b"one")
    async with await RawPeer.connect(site.broker.port) as raw:
        for name in OPTIONAL_FIELDS:
            await raw.send(written({**without(name), "topic": "nowhere"}))

            assert (await raw.read()).code == ResponseCode.TOPIC_NOT_EXIST, name


# --- in bulk ------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", Encoding)
async def test_a_bulk_pull_gets_more_messages(peer: Peer, encoding: Encoding) -> None:
    for number in range(50):
        await peer.send("T", b"%d" % number)
    peer.encoding = encoding

    usual = await peer.read(count_max=1000)
    many = await peer.read(count_max=32, bulk_count=1000, bulk_bytes=1 << 20)
    few = await peer.read(offset=3, bulk_count=10, bulk_bytes=1 << 20)
    one = await peer.read(bulk_count=10, bulk_bytes=-1)

    assert len(usual) == 32
    assert [message.body for message in many] == [b"%d" % number for number in range(50)]
    assert [message.queue_offset for message in few] == [*range(3, 13)]
    assert len(one) == 1


async def test_a_bulk_pull_at_the_end_is_not_held(peer: Peer) -> None:
    await peer.send("T", b"one")

    reply = await peer.pull(offset=1, bulk_count=10, bulk_bytes=100, hold_ms=20_000)

    assert reply.code == PULL_NOT_FOUND


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({"bulkPullCountMax": "40"}, 40),
        ({"bulkPullBytesMax": "1024"}, 1024 // 178),
        ({"bulkPullCountMax": "0"}, 8),
    ],
)
async def test_a_bulk_pull_is_bounded_by_the_broker(
    tmp_path: Path, options: dict[str, str], count: int
) -> None:
    async with running(tmp_path, ManualClock(), **options) as site:
        peer = await site.connect()
        for number in range(50):
            await peer.send("T", b"%02d" % number)
        assert len((await peer.pull(count_max=1)).body) == 178

        found = await peer.read(count_max=8, bulk_count=1000, bulk_bytes=1 << 20)

        assert len(found) == count


async def test_a_filter_applies_to_bulk_pulls(peer: Peer) -> None:
    for number in range(40):
        await peer.send("T", b"%d" % number, TAGS="ab"[number % 2])

    by_tag = await peer.pull(expression="a", bulk_count=30, bulk_bytes=1 << 20)
    by_sql = await peer.read(
        expression="TAGS = 'b'", expression_type="SQL92", bulk_count=30, bulk_bytes=1 << 20
    )

    found = PullReply.decode(by_tag.fields)
    assert found.next_offset == 30
    assert [m.queue_offset for m in decode_records(by_tag.body)] == [*range(0, 30, 2)]
    assert [m.queue_offset for m in by_sql] == [*range(1, 30, 2)]


# --- where a pull may begin -------------------------------------------------------------------


@pytest.mark.parametrize("encoding", Encoding)
@pytest.mark.parametrize(
    ("topic", "offset", "code", "next_offset", "bounds"),
    [
        ("Empty", 0, PULL_NOT_FOUND, 0, (0, 0)),
        ("Empty", 7, OFFSET_MOVED, 0, (0, 0)),
        ("T", -1, OFFSET_MOVED, 0, (0, 5)),
        ("T", 0, ResponseCode.SUCCESS, 5, (0, 5)),
        ("T", 3, ResponseCode.SUCCESS, 5, (0, 5)),
        ("T", 5, PULL_NOT_FOUND, 5, (0, 5)),
        # Who was there before saw a topic of this name that was deleted, or lost: all is new.
        ("T", 6, OFFSET_MOVED, 0, (0, 5)),
        ("T", 10**15, OFFSET_MOVED, 0, (0, 5)),
    ],
)
async def test_an_offset_decides_what_a_pull_gets(
    peer: Peer,
    encoding: Encoding,
    topic: str,
    offset: int,
    code: ResponseCode,
    next_offset: int,
    bounds: tuple[int, int],
) -> None:
    await peer.make_topic("Empty")
    for number in range(5):
        await peer.send("T", b"%d" % number)
    peer.encoding = encoding

    reply = await peer.pull(topic, offset)

    assert reply.code == code, reply.remark
    assert reply.encoding is encoding
    found = PullReply.decode(reply.fields)
    assert (found.min_offset, found.max_offset, found.next_offset) == (*bounds, next_offset)
    assert found.suggested_broker_id == 0
    expected = [b"%d" % number for number in range(max(offset, 0), 5)]
    assert [m.body for m in decode_records(reply.body)] == (
        expected if code == ResponseCode.SUCCESS else []
    )


async def test_a_pull_before_the_first_message_is_redirected_to_it(tmp_path: Path) -> None:
    # Files have the machine's time; this clock is far beyond it.
    async with running(tmp_path, ManualClock(4_000_000_000_000)) as site:
        peer = await site.connect()
        for _ in range(12):
            await peer.send("T", bytes(1 << 20))
        await until(lambda: bool(site.broker.store.delete_expired()))
        start = site.broker.store.start_of("T", 0)

        reply = await peer.pull("T", 0)

        assert start > 0
        assert (reply.code, reply.fields["nextBeginOffset"]) == (OFFSET_MOVED, str(start))
        assert reply.fields["minOffset"] == str(start)


async def test_messages_that_a_filter_rejects_are_skipped(peer: Peer) -> None:
    for tag in ("a", "b", "b"):
        await peer.send("T", tag.encode(), TAGS=tag)

    none = await peer.pull("T", 1, expression="a")
    some = await peer.pull("T", 0, expression="a || c")

    assert (none.code, none.fields["nextBeginOffset"]) == (RETRY, "3")
    assert (some.code, some.fields["nextBeginOffset"]) == (ResponseCode.SUCCESS, "3")
    assert [message.body for message in decode_records(some.body)] == [b"a"]


async def test_a_pull_gets_no_more_messages_than_it_asked_for(peer: Peer) -> None:
    for number in range(40):
        await peer.send("T", b"%d" % number)

    few = await peer.pull("T", 0, count_max=3)
    many = await peer.pull("T", 0, count_max=1000)

    assert few.fields["nextBeginOffset"] == "3"
    assert len(decode_records(few.body)) == 3
    assert len(decode_records(many.body)) == 32  # maxTransferCountOnMessageInMemory


# --- filters ----------------------------------------------------------------------------------


async def test_sql_filters_on_properties(peer: Peer) -> None:
    for number in range(6):
        await peer.send("T", b"%d" % number, price=str(number), TAGS="x")

    found = await peer.read("T", expression="price BETWEEN 2 AND 3", expression_type="SQL92")
    unicode = await peer.read("T", expression="TAGS = 'ü' OR price > 4", expression_type="SQL92")

    assert [message.body for message in found] == [b"2", b"3"]
    assert [message.body for message in unicode] == [b"5"]


async def test_an_invalid_expression_is_refused_with_the_column(peer: Peer) -> None:
    await peer.make_topic("T")

    reply = await peer.pull("T", expression="price > > 3", expression_type="SQL92")
    unknown = await peer.pull("T", expression="x", expression_type="XPATH")

    assert reply.code == unknown.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert "column 9" in reply.remark
    assert "XPATH" in unknown.remark


@pytest.mark.parametrize("options", [{"enablePropertyFilter": "false"}])
async def test_sql_may_be_switched_off(peer: Peer) -> None:
    await peer.make_topic("T")

    reply = await peer.pull("T", expression="a = 1", expression_type="SQL92")

    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert "enablePropertyFilter" in reply.remark


async def test_without_an_expression_that_of_the_heartbeat_is_used(peer: Peer) -> None:
    await peer.send("T", b"a", TAGS="a")
    await peer.send("T", b"b", TAGS="b")

    before = await peer.pull("T", expression=None)
    await peer.heartbeat("c", expression="b", version=5)
    found = await peer.read("T", expression=None, version=5)
    newer = await peer.pull("T", expression=None, version=6)
    await peer.send("T2")
    other_topic = await peer.pull("T2", expression=None)

    assert before.code == ResponseCode.SUBSCRIPTION_NOT_EXIST
    assert [message.body for message in found] == [b"b"]
    assert newer.code == ResponseCode.SUBSCRIPTION_NOT_LATEST
    assert other_topic.code == ResponseCode.SUBSCRIPTION_NOT_EXIST


async def test_a_pull_sees_the_subscription_of_the_heartbeat_right_before_it(
    site: Site, peer: Peer
) -> None:
    await peer.send("T", b"a")
    # As Java's clients do after a rebalance: a new version, and pulls at once.
    await peer.heartbeat("c", version=5)
    heartbeat = request(Heartbeat(), body=heartbeat_body("c", version=6))
    pull = request(pull_header("T", 0, expression=None, version=6))
    heartbeat.opaque, pull.opaque = 101, 102

    async with await RawPeer.connect(site.broker.port) as raw:
        await raw.send(heartbeat, pull)
        # The broker also notifies the member that joined.
        received = [await raw.read() for _ in range(3)]
        codes = {reply.opaque: reply.code for reply in received if reply.is_response}

    assert codes == {101: ResponseCode.SUCCESS, 102: ResponseCode.SUCCESS}


async def test_a_pull_that_was_faster_than_its_heartbeat_is_refused_without_a_warning(
    peer: Peer, caplog: pytest.LogCaptureFixture
) -> None:
    await peer.send("T", b"a")
    await peer.heartbeat("c", version=5)

    early = await peer.pull("T", expression=None, version=6)

    assert early.code == ResponseCode.SUBSCRIPTION_NOT_LATEST
    assert [record for record in caplog.records if "refused" in record.message] == []


# --- waiting ----------------------------------------------------------------------------------


@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
@pytest.mark.parametrize("encoding", Encoding)
async def test_a_held_pull_is_answered_when_a_message_arrives(
    tmp_path: Path, flush: str, encoding: Encoding
) -> None:
    async with running(tmp_path, ManualClock(), flushDiskType=flush) as site:
        consumer, producer = await site.connect(), await site.connect()
        await producer.make_topic("T")
        consumer.encoding = encoding
        pull = asyncio.create_task(consumer.pull("T", 0, hold_ms=15_000))
        await parked(site)

        await producer.send("T", b"one", queue_id=1)
        await producer.send("T", b"two", queue_id=0)
        reply = await pull

        assert reply.encoding is encoding
        assert [message.body for message in decode_records(reply.body)] == [b"two"]
        assert len(site.broker.parts.long_polls) == 0


async def test_a_held_pull_stays_while_its_filter_accepts_nothing(site: Site, peer: Peer) -> None:
    producer = await site.connect()
    await producer.make_topic("T")
    pull = asyncio.create_task(peer.pull("T", 0, expression="a", hold_ms=15_000))
    await parked(site)

    for _ in range(3):
        await producer.send("T", TAGS="b")
    assert len(site.broker.parts.long_polls) == 1
    await producer.send("T", b"wanted", TAGS="a")

    assert [message.body for message in decode_records((await pull).body)] == [b"wanted"]


async def test_a_held_pull_is_answered_when_more_arrived_than_one_read_covers(
    site: Site, peer: Peer
) -> None:
    producer = await site.connect()
    await producer.make_topic("T")
    pull = asyncio.create_task(peer.pull("T", 0, expression="a", hold_ms=15_000))
    await parked(site)

    # A burst that becomes visible at once: 900 others, then the one that matches.
    batch = encode_batch(
        BatchedMessage(flag=0, body=b"x", properties=b"TAGS\x01%b\x02" % tag)
        for tag in [b"b"] * 900 + [b"a"]
    )
    await producer.ask(send_header("T", kind=SendBatch, batch=True), batch)
    reply = await pull

    # The client continues from there at once.
    assert reply.code == RETRY
    assert 0 < int(reply.fields["nextBeginOffset"]) <= 900


async def test_a_held_pull_gets_an_empty_reply_at_its_deadline(site: Site, peer: Peer) -> None:
    await peer.make_topic("T")
    pull = asyncio.create_task(peer.pull("T", 0, hold_ms=15_000))
    await parked(site)

    await site.clock.advance(14_900)
    assert len(site.broker.parts.long_polls) == 1
    await site.clock.advance(200)

    reply = await pull
    assert (reply.code, reply.fields["nextBeginOffset"]) == (PULL_NOT_FOUND, "0")


async def test_no_pull_is_held_longer_than_clients_wait_for_a_reply(site: Site, peer: Peer) -> None:
    await peer.make_topic("T")
    pull = asyncio.create_task(peer.pull("T", 0, hold_ms=10**9))
    await parked(site)

    await site.clock.advance(25_200)

    assert (await pull).code == PULL_NOT_FOUND


async def test_a_held_pull_is_refused_when_the_broker_stops(site: Site, peer: Peer) -> None:
    await peer.make_topic("T")
    pull = asyncio.create_task(peer.pull("T", 0, hold_ms=15_000))
    await parked(site)

    await site.broker.stop()

    reply = await pull
    assert (reply.code, "stopping" in reply.remark) == (ResponseCode.SYSTEM_BUSY, True)


async def test_a_stopping_broker_refuses_pulls_that_it_would_hold_and_no_others(
    site: Site, peer: Peer
) -> None:
    await peer.make_topic("T")
    await peer.send("T", b"one")
    site.broker.parts.long_polls.close()

    found = await peer.pull("T", 0, hold_ms=15_000)
    held = await peer.pull("T", 1, hold_ms=15_000)
    short = await peer.pull("T", 1)

    assert [reply.code for reply in (found, held, short)] == [
        ResponseCode.SUCCESS,
        ResponseCode.SYSTEM_BUSY,
        PULL_NOT_FOUND,
    ]


async def test_a_held_pull_is_dropped_with_its_connection(site: Site, peer: Peer) -> None:
    await peer.make_topic("T")
    async with await RawPeer.connect(site.broker.port) as raw:
        await raw.send(request(pull_header("T", 0, hold_ms=15_000)))
        await parked(site)
    await site.advance_until(lambda: len(site.broker.parts.long_polls) == 0)

    assert (await peer.send("T")).code == ResponseCode.SUCCESS


@pytest.mark.parametrize(
    "options", [{"longPollingEnable": "false", "shortPollingTimeMills": "700"}]
)
async def test_without_long_polling_a_pull_is_held_briefly(site: Site, peer: Peer) -> None:
    await peer.make_topic("T")
    pull = asyncio.create_task(peer.pull("T", 0, hold_ms=15_000))
    await parked(site)

    await site.clock.advance(900)

    assert (await pull).code == PULL_NOT_FOUND


@pytest.mark.parametrize("options", [{"pullThreadPoolQueueCapacity": "2"}])
async def test_pulls_above_the_limit_of_held_ones_get_an_empty_reply(
    site: Site, peer: Peer
) -> None:
    await peer.make_topic("T")
    held = [asyncio.create_task(peer.pull("T", 0, hold_ms=15_000)) for _ in range(2)]
    await parked(site, 2)

    reply = await peer.pull("T", 0, hold_ms=15_000)

    assert reply.code == PULL_NOT_FOUND
    await site.clock.advance(16_000)
    await asyncio.gather(*held)


# --- who may not ------------------------------------------------------------------------------


async def test_unknown_topics_and_queues_are_refused(peer: Peer) -> None:
    await peer.make_topic("T", read=2, write=4)

    topic = await peer.pull("NoSuch")
    queue = await peer.pull("T", queue_id=2)
    negative = await peer.pull("T", queue_id=-1)

    assert topic.code == ResponseCode.TOPIC_NOT_EXIST
    assert "NoSuch" in topic.remark
    assert queue.code == negative.code == ResponseCode.INVALID_PARAMETER
    assert "0 to 1" in queue.remark


@pytest.mark.parametrize("options", [{"autoCreateSubscriptionGroup": "false"}])
async def test_an_unknown_group_is_refused_without_auto_creation(peer: Peer) -> None:
    await peer.make_topic("T")

    reply = await peer.pull("T", group="strangers")

    assert reply.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert "strangers" in reply.remark


@pytest.mark.parametrize("options", [{"brokerPermission": "2"}])
async def test_a_write_only_broker_refuses_pulls(peer: Peer) -> None:
    await peer.make_topic("T")

    reply = await peer.pull("T")

    assert (reply.code, reply.fields["forbiddenType"]) == (ResponseCode.NO_PERMISSION, "1")


async def test_groups_and_topics_may_be_closed_to_readers(site: Site, peer: Peer) -> None:
    await peer.make_topic("T")
    await peer.make_topic("Closed", perm=2)
    await site.broker.groups.put(GroupConfig(name="off", allows_consuming=False))

    group = await peer.pull("T", group="off")
    topic = await peer.pull("Closed")

    assert (group.code, group.fields["forbiddenType"]) == (ResponseCode.NO_PERMISSION, "2")
    assert (topic.code, topic.fields["forbiddenType"]) == (ResponseCode.NO_PERMISSION, "3")


# --- on the way -------------------------------------------------------------------------------


async def test_a_reset_is_reported_once_by_the_next_pull(peer: Peer) -> None:
    for _ in range(5):
        await peer.send("T")
    await peer.heartbeat("c")
    await peer.pull("T", commit=4)
    await peer.ask(
        ResetOffsets(topic="T", group="g", timestamp_ms=Long(0), force=True, offset=Long(2))
    )

    first, second = await peer.pull("T", 4), await peer.pull("T", 4)

    assert (first.code, first.fields["nextBeginOffset"]) == (OFFSET_MOVED, "2")
    assert second.code == ResponseCode.SUCCESS


async def test_a_oneway_pull_gets_no_reply_about_a_reset(site: Site, peer: Peer) -> None:
    await peer.send("T")
    site.broker.offsets.reset("g", "T", 0, 0)
    asked = request(pull_header("T", 1))
    asked.flag |= 2
    async with await RawPeer.connect(site.broker.port) as raw:
        await raw.send(asked, last := request(pull_header("T", 0)))

        reply = await raw.read()

    assert (reply.opaque, reply.code) == (last.opaque, ResponseCode.SUCCESS)


async def test_a_held_pull_gets_a_reset_at_once(site: Site, peer: Peer) -> None:
    for _ in range(5):
        await peer.send("T")
    await peer.heartbeat("c")
    pull = asyncio.create_task(peer.pull("T", 5, hold_ms=15_000))
    await parked(site)

    await peer.ask(
        ResetOffsets(topic="T", group="g", timestamp_ms=Long(0), force=True, offset=Long(2))
    )
    told = await pull

    assert (told.code, told.fields["nextBeginOffset"]) == (OFFSET_MOVED, "2")
    assert (await peer.pull("T", 2)).code == ResponseCode.SUCCESS


async def test_a_pull_at_the_offset_of_the_reset_is_served(peer: Peer) -> None:
    for _ in range(5):
        await peer.send("T")
    await peer.heartbeat("c")
    await peer.ask(
        ResetOffsets(topic="T", group="g", timestamp_ms=Long(0), force=True, offset=Long(2))
    )

    served, later = await peer.pull("T", 2), await peer.pull("T", 4)

    assert served.code == ResponseCode.SUCCESS
    assert later.code == ResponseCode.SUCCESS


async def test_lite_consumers_pull_under_their_own_code(peer: Peer) -> None:
    await peer.send("T", b"one")
    asked = request(pull_header("T"))
    asked.code = RequestCode.LITE_PULL_MESSAGE

    reply = await peer.rpc.invoke(peer.address, asked)

    assert [message.body for message in decode_records(reply.body)] == [b"one"]


async def test_the_fast_lane_answers_like_the_port_itself(site: Site, peer: Peer) -> None:
    lane = await site.connect()
    lane.address = f"127.0.0.1:{site.broker.port - 2}"
    await lane.send("T", b"one")

    assert [message.body for message in await lane.read("T")] == [b"one"]
    assert [message.body for message in await peer.read("T")] == [b"one"]


async def test_a_stopped_broker_accepts_no_connections(site: Site, peer: Peer) -> None:
    await peer.send("T")

    await site.broker.stop()
    await until(lambda: not peer.rpc.connected)

    with pytest.raises(ConnectError):
        await peer.rpc.invoke(peer.address, request(pull_header("T")))
