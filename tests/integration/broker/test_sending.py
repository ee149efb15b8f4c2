"""Sends: all spellings, what is refused and why, and both ways through the broker."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from orbitmq.broker.handlers.sending import SendRequests
from orbitmq.model import property_names
from orbitmq.protocol import fast_forms
from orbitmq.protocol.codes import RequestCode, ResponseCode, Role
from orbitmq.protocol.command import Command, request
from orbitmq.protocol.frame import PREFIX, PREFIX_BYTES, Encoding, header_span
from orbitmq.protocol.requests.configuration import UpdateBrokerConfig
from orbitmq.protocol.requests.sending import SendBatch, SendMessage, SendMessageShort, SendReply
from orbitmq.protocol.requests.topics import DeleteTopic
from orbitmq.record.batch import BatchedMessage, encode_batch
from orbitmq.record.decode import decode_records
from orbitmq.record.message_id import decode_message_id
from tests.integration.broker.conftest import Peer, Site, pull_header, send_header
from tests.integration.transport.raw_peer import RawPeer
from tests.waiting import until

ONE, DELAYED, HALF = (
    encode_batch([BatchedMessage(flag=0, body=b"m", properties=properties)])
    for properties in (b"", b"DELAY\x013\x02", b"TRAN_MSG\x01true\x02")
)

# 11,500 bytes that the hot path understands.
PLAIN = encode_batch([BatchedMessage(flag=0, body=b"m" * 11_466, properties=b"UNIQ_KEY\x01AB\x02")])


def written_oddly(command: Command) -> bytes:
    """Encode a request so that only the ordinary way reads it: the code is not first."""
    frame = command.encode()
    header_end, encoding = header_span(frame, 0, len(frame))
    assert encoding is Encoding.JSON
    fields = json.loads(frame[PREFIX_BYTES:header_end])
    code = fields.pop("code")
    header = json.dumps({**fields, "code": code}).encode()
    body = frame[header_end:]
    return PREFIX.pack(4 + len(header) + len(body), len(header)) + header + body


def test_the_table_of_codes_names_exactly_the_codes_that_have_a_handler(site: Site) -> None:
    answered = {code for code in RequestCode if Role.BROKER in code.answered_by}

    assert set(site.broker.serving.servers[0]._requests._handlers) == answered


@pytest.mark.parametrize("encoding", Encoding)
@pytest.mark.parametrize("kind", [SendMessage, SendMessageShort, SendBatch])
async def test_a_message_is_stored_as_it_was_sent(
    site: Site, peer: Peer, kind: type[SendMessage], encoding: Encoding
) -> None:
    peer.encoding = encoding
    await peer.make_topic("T")

    reply = await peer.send(
        "T", b"hello", queue_id=2, kind=kind, flag=7, KEYS="Schlüssel k2", TAGS="a", own="größe 語"
    )

    assert reply.code == ResponseCode.SUCCESS, reply.remark
    assert reply.encoding is encoding
    receipt = SendReply.decode(reply.fields)
    assert (receipt.queue_id, receipt.queue_offset) == (2, 0)
    assert receipt.transaction_id == "0A0000010000"
    assert (receipt.region, receipt.trace) == ("DefaultRegion", True)
    (message,) = await peer.read("T", queue_id=2)
    assert (message.body, message.flag, message.queue_id) == (b"hello", 7, 2)
    assert message.born_ms == 1_600_000_000_123
    assert message.born_host[0] == "127.0.0.1"
    assert message.store_ms == site.clock.now_ms()
    assert message.properties == {
        "KEYS": "Schlüssel k2",
        "TAGS": "a",
        "own": "größe 語",
        "UNIQ_KEY": "0A0000010000",
        property_names.REGION: "DefaultRegion",
        property_names.TRACE_ON: "true",
        property_names.CLUSTER: "DefaultCluster",
    }
    assert decode_message_id(receipt.message_id)[2] == message.physical_offset


async def test_both_ways_through_the_broker_store_and_reply_alike(site: Site) -> None:
    peer = await site.connect()
    await peer.make_topic("T")
    asked = request(send_header("T", TAGS="a", own="b"), b"x" * 100)
    asked.opaque = 77
    async with await RawPeer.connect(site.broker.port) as raw:
        await raw.send(asked.encode())
        fast = await raw.read()
        await raw.send(written_oddly(asked))
        ordinary = await raw.read()
        pulled = request(pull_header("T", 5))
        pulled.opaque = 78
        await raw.send(pulled.encode(), written_oddly(pulled))
        fast_pull, ordinary_pull = await raw.read(), await raw.read()

    assert fast.code == ordinary.code == ResponseCode.SUCCESS
    assert fast.opaque == ordinary.opaque == 77
    varying = {"msgId", "queueOffset"}
    assert {k: v for k, v in fast.fields.items() if k not in varying} == {
        k: v for k, v in ordinary.fields.items() if k not in varying
    }
    assert fast.fields.keys() == ordinary.fields.keys()
    first, second = await peer.read("T")
    assert first.properties == second.properties
    assert (first.size, first.body, first.born_host) == (second.size, second.body, second.born_host)
    assert fast_pull == ordinary_pull
    assert fast_pull.code == ResponseCode.PULL_OFFSET_MOVED


async def test_a_message_without_a_unique_id_gets_one(peer: Peer) -> None:
    await peer.make_topic("T")

    reply = await peer.send("T", unique_id=None)

    (message,) = await peer.read("T")
    assert reply.fields["transactionId"] == message.properties["UNIQ_KEY"]
    assert len(message.properties["UNIQ_KEY"]) == 32


async def test_a_batch_is_stored_as_its_messages_at_neighbouring_offsets(peer: Peer) -> None:
    batch = encode_batch(
        BatchedMessage(flag=n, body=b"m%d" % n, properties=b"UNIQ_KEY\x01ID%d\x02" % n)
        for n in range(5)
    )
    await peer.make_topic("T")
    await peer.send("T")

    reply = await peer.ask(send_header("T", kind=SendBatch, batch=True), batch)

    assert reply.code == ResponseCode.SUCCESS, reply.remark
    ids = reply.fields["msgId"].split(",")
    assert reply.fields["queueOffset"] == "1"
    messages = (await peer.read("T"))[1:]
    assert [message.body for message in messages] == [b"m%d" % n for n in range(5)]
    assert [message.flag for message in messages] == list(range(5))
    assert [message.properties["UNIQ_KEY"] for message in messages] == [f"ID{n}" for n in range(5)]
    assert [decode_message_id(id_)[2] for id_ in ids] == [m.physical_offset for m in messages]


@pytest.mark.parametrize("encoding", Encoding)
@pytest.mark.parametrize("options", [{}, {"flushDiskType": "SYNC_FLUSH"}], ids=["async", "sync"])
async def test_all_ways_through_the_broker_store_and_reply_to_batches_alike(
    site: Site, monkeypatch: pytest.MonkeyPatch, encoding: Encoding
) -> None:
    ordinary_batches: list[int] = []
    send_ordinary = SendRequests._send_batch

    async def counted(*parts: Any) -> Command:
        ordinary_batches.append(parts[2].opaque)
        return await send_ordinary(*parts)

    monkeypatch.setattr(SendRequests, "_send_batch", counted)
    peer = await site.connect()
    peer.encoding = encoding
    await peer.make_topic("T")
    batch = encode_batch(
        BatchedMessage(
            flag=n - 1, body=b"m%d" % n, properties=b"KEYS\x01k%d\x02UNIQ_KEY\x01ID%d" % (n, n)
        )
        for n in range(5)
    )

    header = send_header("T", kind=SendBatch, batch=True, retries=2)
    replies = [await peer.ask(header, batch) for _ in range(2)]
    assert len(ordinary_batches) == (0 if fast_forms.IS_COMPILED else 2)
    # This spelling takes the ordinary way.
    header = send_header("T", kind=SendBatch, batch=True, retries=2, WAIT="True")
    replies.append(await peer.ask(header, batch))

    assert len(ordinary_batches) == (1 if fast_forms.IS_COMPILED else 3)
    assert {reply.code for reply in replies} == {ResponseCode.SUCCESS}
    assert {reply.encoding for reply in replies} == {encoding}
    varying = {"msgId", "queueOffset"}
    first, *others = [
        {name: value for name, value in reply.fields.items() if name not in varying}
        for reply in replies
    ]
    assert others == [first, first]
    assert [reply.fields["queueOffset"] for reply in replies] == ["0", "5", "10"]
    messages = await peer.read("T")
    ids = ",".join(reply.fields["msgId"] for reply in replies).split(",")
    assert [decode_message_id(id_)[2] for id_ in ids] == [m.physical_offset for m in messages]
    placed: dict[str, Any] = {"queue_offset": 0, "physical_offset": 0, "store_ms": 0}
    stored = [replace(message, **placed) for message in messages]
    assert stored[:5] == stored[5:10] == stored[10:]
    put = site.broker.parts.counters.put("T")
    assert put.messages == 15
    assert put.bytes == sum(message.size for message in messages)


@pytest.mark.parametrize(
    ("topic", "body", "code"),
    [
        ("T", b"", ResponseCode.MESSAGE_ILLEGAL),
        ("T", b"\0\0\0\x20bad", ResponseCode.SYSTEM_ERROR),
        ("T", ONE + DELAYED, ResponseCode.MESSAGE_ILLEGAL),
        ("T", ONE + HALF, ResponseCode.MESSAGE_ILLEGAL),
        ("%RETRY%g", ONE, ResponseCode.MESSAGE_ILLEGAL),
    ],
    ids=["empty", "damaged", "delayed", "half message", "retry topic"],
)
async def test_a_batch_that_cannot_be_stored_is_refused_whole(
    site: Site, peer: Peer, topic: str, body: bytes, code: ResponseCode
) -> None:
    await peer.make_topic("T")
    await peer.heartbeat("c", group="g")
    end = site.broker.store.log_end

    reply = await peer.ask(send_header(topic, kind=SendBatch, batch=True), body)

    assert reply.code == code
    assert reply.remark
    assert site.broker.store.log_end == end


async def test_a_batch_of_half_messages_is_refused_whatever_its_properties(
    site: Site, peer: Peer
) -> None:
    batch = encode_batch([BatchedMessage(0, b"m", b"UNIQ_KEY\x01ID\x02")])
    await peer.make_topic("T")
    end = site.broker.store.log_end

    reply = await peer.ask(send_header("T", kind=SendBatch, batch=True, system_flag=4), batch)

    # If stored, they would wait for a transaction that never ends: acknowledged, never delivered.
    assert reply.code == ResponseCode.MESSAGE_ILLEGAL
    assert site.broker.store.log_end == end


@pytest.mark.parametrize("body", [ONE * 3500, PLAIN * 7], ids=["ordinary", "hot"])
async def test_a_batch_is_no_larger_than_a_message_may_be(
    site: Site, peer: Peer, body: bytes
) -> None:
    await peer.make_topic("T")
    await peer.ask(UpdateBrokerConfig(), b"maxMessageSize=70000")

    reply = await peer.ask(send_header("T", kind=SendBatch, batch=True), body)

    assert reply.code == ResponseCode.MESSAGE_ILLEGAL
    assert "80500 bytes is above the limit of 70000" in (reply.remark or "")
    assert site.broker.store.end_of("T", 0) == 0


@pytest.mark.parametrize("encoding", Encoding)
@pytest.mark.parametrize("batch", [False, True], ids=["one message", "batch"])
async def test_an_answer_is_never_taken_for_a_send(
    site: Site, *, encoding: Encoding, batch: bool
) -> None:
    peer = await site.connect()
    await peer.make_topic("T")
    answer = request(send_header("T", batch=batch), PLAIN, encoding=encoding)
    answer.flag |= 1
    async with await RawPeer.connect(site.broker.port) as raw:
        await raw.send(answer, request(pull_header("T", 0)))

        reply = await raw.read()

    assert reply.code == ResponseCode.PULL_NOT_FOUND
    assert site.broker.store.end_of("T", 0, committed=False) == 0


async def test_a_oneway_send_is_stored_and_not_answered(site: Site) -> None:
    peer = await site.connect()
    await peer.make_topic("T")
    asked = request(send_header("T"), b"one way")
    asked.flag |= 2
    async with await RawPeer.connect(site.broker.port) as raw:
        await raw.send(asked, request(pull_header("T", 0, hold_ms=5000)))

        reply = await raw.read()

    assert [message.body for message in decode_records(reply.body)] == [b"one way"]


# --- topics and queues ------------------------------------------------------------------------


async def test_an_unknown_topic_is_created_from_its_template(site: Site, peer: Peer) -> None:
    reply = await peer.send("Fresh", queues=3)

    assert reply.code == ResponseCode.SUCCESS, reply.remark
    topic = site.broker.topics.require("Fresh")
    assert (topic.read_queues, topic.write_queues, topic.permission) == (3, 3, 6)


async def test_a_template_gives_no_more_queues_than_it_has(site: Site, peer: Peer) -> None:
    await peer.send("Fresh", queues=100)

    assert site.broker.topics.require("Fresh").write_queues == 8


@pytest.mark.parametrize("options", [{"autoCreateTopicEnable": "false"}])
async def test_an_unknown_topic_is_refused_without_auto_creation(site: Site, peer: Peer) -> None:
    reply = await peer.send("Fresh")

    assert reply.code == ResponseCode.TOPIC_NOT_EXIST
    assert "Fresh" in reply.remark
    assert site.broker.topics.get("Fresh") is None


@pytest.mark.parametrize("template", ["NoSuch", "SELF_TEST_TOPIC"])
async def test_a_topic_is_not_created_from_a_topic_that_is_no_template(
    peer: Peer, template: str
) -> None:
    reply = await peer.send("Fresh", template=template)

    assert reply.code == ResponseCode.TOPIC_NOT_EXIST


@pytest.mark.parametrize("topic", ["no way", "", "x" * 128, "täg"])
async def test_an_invalid_topic_name_is_refused(peer: Peer, topic: str) -> None:
    reply = await peer.send(topic)

    assert reply.code in {ResponseCode.INVALID_PARAMETER, ResponseCode.MESSAGE_ILLEGAL}
    assert reply.remark


@pytest.mark.parametrize(
    "topic",
    ["SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT"],
)
async def test_topics_of_the_broker_refuse_sends(site: Site, peer: Peer, topic: str) -> None:
    reply = await peer.send(topic)

    assert reply.code == ResponseCode.NO_PERMISSION
    assert topic in reply.remark
    assert site.broker.store.log_end == 0


async def test_a_queue_beyond_both_counts_is_refused(peer: Peer) -> None:
    await peer.make_topic("T", read=2, write=4)

    taken, refused = await peer.send("T", queue_id=3), await peer.send("T", queue_id=4)

    assert taken.code == ResponseCode.SUCCESS
    assert refused.code == ResponseCode.INVALID_PARAMETER
    assert "0 to 3" in refused.remark


async def test_a_negative_queue_leaves_the_choice_to_the_broker(peer: Peer) -> None:
    await peer.make_topic("T", read=4, write=2)

    replies = [await peer.send("T", queue_id=-1) for _ in range(20)]

    assert {reply.code for reply in replies} == {ResponseCode.SUCCESS}
    assert {reply.fields["queueId"] for reply in replies} <= {"0", "1"}


async def test_a_topic_without_write_permission_is_refused(site: Site, peer: Peer) -> None:
    await peer.make_topic("T", perm=6)
    await peer.send("T")

    await peer.make_topic("T", perm=4)
    reply = await peer.send("T")

    assert reply.code == ResponseCode.NO_PERMISSION
    assert site.broker.store.end_of("T", 0) == 1


@pytest.mark.parametrize("options", [{"brokerPermission": "4"}])
async def test_a_read_only_broker_refuses_sends(site: Site, peer: Peer) -> None:
    await peer.make_topic("T")

    reply = await peer.send("T")

    assert reply.code == ResponseCode.NO_PERMISSION
    assert "brokerPermission" in reply.remark
    assert site.broker.store.log_end == 0


# --- messages ---------------------------------------------------------------------------------


async def test_the_largest_body_is_accepted_and_one_byte_more_is_not(
    site: Site, peer: Peer
) -> None:
    await peer.make_topic("T")

    largest = await peer.send("T", bytes(4 << 20))
    larger = await peer.send("T", bytes((4 << 20) + 1))

    assert largest.code == ResponseCode.SUCCESS, largest.remark
    assert larger.code == ResponseCode.MESSAGE_ILLEGAL
    assert "4194304" in larger.remark
    assert site.broker.store.end_of("T", 0) == 1


@pytest.mark.parametrize(
    ("body", "value_bytes"), [(b"", 1), (b"x", 32_767)], ids=["no body", "large properties"]
)
async def test_a_message_above_the_limits_is_refused(
    site: Site, peer: Peer, body: bytes, value_bytes: int
) -> None:
    await peer.make_topic("T")
    properties = f"UNIQ_KEY\x01A\x02own\x01{'v' * value_bytes}\x02"

    reply = await peer.ask(replace(send_header("T"), properties=properties), body)

    assert reply.code == ResponseCode.MESSAGE_ILLEGAL
    assert reply.remark
    assert site.broker.store.log_end == 0


@pytest.mark.parametrize(
    "code",
    [RequestCode.POP_MESSAGE],
)
async def test_an_unsupported_request_is_refused_as_such(peer: Peer, code: RequestCode) -> None:
    reply = await peer.rpc.invoke(peer.address, Command(code=code))

    assert reply.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert code.name in reply.remark


async def test_a_send_without_a_field_is_refused_with_its_name(peer: Peer) -> None:
    asked = request(send_header("T"), b"x")
    del asked.fields["e"]

    reply = await peer.rpc.invoke(peer.address, asked)

    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert "queueId" in reply.remark


# --- many at once -----------------------------------------------------------------------------


async def test_a_chunk_of_everything_is_answered_completely_and_in_order(site: Site) -> None:
    peer = await site.connect()
    await peer.make_topic("T")
    frames: list[Command] = []
    for number in range(600):
        asked = request(send_header("T", queue_id=number % 4), b"%d" % number)
        if number % 10 == 9:
            asked = request(pull_header("T", 10**9, queue_id=number % 4))
        elif number % 10 == 4:
            asked = Command(code=RequestCode.GET_ALL_TOPIC_CONFIG)
        asked.opaque = number
        frames.append(asked)
    async with await RawPeer.connect(site.broker.port) as raw:
        await raw.send(*frames)

        replies = [await raw.read() for _ in frames]

    assert sorted(reply.opaque for reply in replies) == list(range(600))
    sends = [reply for reply in replies if "msgId" in reply.fields]
    assert len(sends) == 480
    assert [reply.opaque for reply in sends] == sorted(reply.opaque for reply in sends)
    stored: list[int] = []
    for queue_id in range(4):
        bodies: list[int] = []
        while found := await peer.read("T", len(bodies), queue_id=queue_id):
            bodies += [int(message.body) for message in found]
        assert bodies == sorted(bodies)
        stored += bodies
    assert len(stored) == 480


# --- when the broker does not take sends ------------------------------------------------------


@pytest.mark.parametrize("options", [{"startAcceptSendRequestTimeStamp": "1700000060000"}])
async def test_sends_before_the_configured_time_are_refused(site: Site, peer: Peer) -> None:
    await peer.make_topic("T")

    early = await peer.send("T")
    await site.clock.advance(60_000)
    later = await peer.send("T")

    assert early.code == ResponseCode.SYSTEM_ERROR
    assert "startAcceptSendRequestTimeStamp" in early.remark
    assert later.code == ResponseCode.SUCCESS


async def test_a_deleted_topic_starts_empty_again(site: Site, peer: Peer) -> None:
    await peer.send("T", b"old")
    await peer.ask(DeleteTopic(topic="T"))

    reply = await peer.send("T", b"new")

    assert reply.fields["queueOffset"] == "0"
    await until(lambda: site.broker.store.end_of("T", 0) == 1)
    assert [message.body for message in await peer.read("T")] == [b"new"]
