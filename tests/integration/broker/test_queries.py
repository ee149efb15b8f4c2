"""Queries of messages and queue entries, and the state of a broker, as RocketMQ's tools ask for them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.configuration import GetBrokerConfig
from orbitmq.protocol.requests.queries import FindMessages, ReadMessage, ReadQueueEntries
from orbitmq.protocol.requests.statistics import GetReplication, GetRuntime
from orbitmq.record.decode import decode_records
from orbitmq.record.message_id import decode_message_id
from tests.integration.broker.conftest import Peer, Site, content
from tests.waiting import until

OK = ResponseCode.SUCCESS


# --- messages ---------------------------------------------------------------------------------


async def test_messages_are_found_by_key_and_by_unique_id(site: Site, peer: Peer) -> None:
    for number in range(3):
        await peer.send("T", b"%d" % number, unique_id=f"ID{number}", KEYS=f"all k{number}")
    await until(lambda: site.broker.store.end_of("T", 0) == 3)

    async def found(key: str, *, unique: bool = False, count: int = 10) -> list[bytes]:
        reply = await peer.ask(
            FindMessages(
                topic="T",
                key=key,
                messages_max=count,
                begin_ms=Long(0),
                end_ms=Long(2**62),
                by_unique_key=unique,
            )
        )
        assert reply.code == (OK if reply.body else ResponseCode.QUERY_NOT_FOUND)
        assert "indexLastUpdateTimestamp" in reply.fields
        return [message.body for message in decode_records(reply.body)]

    assert await found("all") == [b"0", b"1", b"2"]
    assert await found("all", count=2) == [b"1", b"2"]
    assert await found("k1") == [b"1"]
    assert await found("ID2", unique=True, count=1) == [b"2"]
    assert await found("nobody") == []


async def test_of_more_messages_than_fit_into_a_reply_the_newest_are_found(
    site: Site, peer: Peer
) -> None:
    for number in range(4):
        await peer.send("T", b"%d" % number * (3 << 20), unique_id=f"ID{number}", KEYS="all")
    await until(lambda: site.broker.store.end_of("T", 0) == 4)

    reply = await peer.ask(
        FindMessages(topic="T", key="all", messages_max=10, begin_ms=Long(0), end_ms=Long(2**62))
    )

    assert [message.body[:1] for message in decode_records(reply.body)] == [b"2", b"3"]


@pytest.mark.parametrize(
    ("key_type", "key", "bodies"),
    [
        ("T", "red", [b"0", b"2"]),
        ("T", "k", []),
        ("K", "k", [b"0", b"1", b"2"]),
        ("K", "red", []),
        ("U", "ID1", [b"1"]),
        ("K", "k" * 40_000, []),
    ],
)
async def test_a_query_may_say_what_its_key_is(
    site: Site, peer: Peer, key_type: str, key: str, bodies: list[bytes]
) -> None:
    for number, tag in enumerate(("red", "blue", "red")):
        await peer.send("T", b"%d" % number, unique_id=f"ID{number}", KEYS="k", TAGS=tag)
    await until(lambda: site.broker.store.end_of("T", 0) == 3)

    reply = await peer.ask(
        FindMessages(
            topic="T",
            key=key,
            messages_max=9,
            begin_ms=Long(0),
            end_ms=Long(2**63 - 1),
            key_type=key_type,
        )
    )

    assert reply.code == (OK if bodies else ResponseCode.QUERY_NOT_FOUND)
    assert [message.body for message in decode_records(reply.body)] == bodies


async def test_a_query_by_an_unknown_kind_of_key_is_refused(peer: Peer) -> None:
    reply = await peer.ask(
        FindMessages(
            topic="T", key="k", messages_max=9, begin_ms=Long(0), end_ms=Long(1), key_type="Z"
        )
    )

    assert reply.code == ResponseCode.INVALID_PARAMETER
    assert "no key type 'Z'" in reply.remark


async def test_a_message_is_read_by_its_log_position(peer: Peer) -> None:
    reply = await peer.send("T", b"one")
    place = decode_message_id(reply.fields["msgId"])[2]

    found = await peer.ask(ReadMessage(physical_offset=Long(place)))
    beside = await peer.ask(ReadMessage(physical_offset=Long(place + 1)))
    beyond = await peer.ask(ReadMessage(physical_offset=Long(2**60)))
    negative = await peer.ask(ReadMessage(physical_offset=Long(-1)))

    assert [message.body for message in decode_records(found.body)] == [b"one"]
    assert {beside.code, beyond.code, negative.code} == {ResponseCode.SYSTEM_ERROR}


async def test_entries_of_a_queue_are_shown_with_the_result_of_the_groups_filter(
    peer: Peer,
) -> None:
    await peer.send("T", TAGS="a")
    await peer.send("T", TAGS="b")
    await peer.heartbeat("c", expression="b")

    plain = content(
        await peer.ask(ReadQueueEntries(topic="T", queue_id=0, queue_offset=Long(1), count=10))
    )
    judged = content(
        await peer.ask(
            ReadQueueEntries(
                topic="T", queue_id=0, queue_offset=Long(0), count=10**9, consumer_group="g"
            )
        )
    )
    beyond = await peer.ask(
        ReadQueueEntries(topic="T", queue_id=0, queue_offset=Long(-7), count=-1)
    )

    assert (plain["minQueueIndex"], plain["maxQueueIndex"]) == (0, 2)
    # As RocketMQ shows it: without a group nothing is evaluated, and a tag needs no filter data.
    assert [entry["eval"] for entry in plain["queueData"]] == [False]
    assert "filterData" not in plain
    assert [entry["eval"] for entry in judged["queueData"]] == [False, True]
    assert (judged["subscriptionData"]["subString"], judged["filterData"]) == ("b", "null")
    assert (beyond.code, content(beyond)["queueData"]) == (OK, [])


async def test_entries_of_a_queue_tell_of_the_groups_filter_even_if_it_cannot_be_evaluated(
    peer: Peer,
) -> None:
    await peer.send("T", TAGS="a")
    await peer.heartbeat("c", expression="a > 5", expression_type="SQL92")

    async def entries(group: str) -> Any:
        header = ReadQueueEntries(
            topic="T", queue_id=0, queue_offset=Long(0), count=1, consumer_group=group
        )
        return content(await peer.ask(header))

    sql, offline = await entries("g"), await entries("nobody")

    described = json.loads(sql["filterData"])
    assert (described["expression"], described["expressionType"]) == ("a > 5", "SQL92")
    assert [entry["eval"] for entry in sql["queueData"]] == [False]
    assert offline["filterData"] == "nobody@T is not online!"
    assert len(offline["queueData"]) == 1


@pytest.mark.parametrize(
    ("topic", "queue_id", "hint"),
    [("T", 9, "queues 0 to 3"), ("T", -1, "queues"), ("none", 0, "does not have the topic")],
)
async def test_entries_of_a_missing_queue_are_refused(
    peer: Peer, topic: str, queue_id: int, hint: str
) -> None:
    await peer.make_topic("T")

    reply = await peer.ask(
        ReadQueueEntries(topic=topic, queue_id=queue_id, queue_offset=Long(0), count=1)
    )

    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert f"{queue_id}@{topic} is not exist!" in reply.remark
    assert hint in reply.remark


# --- what RocketMQ's tools look for -----------------------------------------------------------


async def test_a_broker_without_slaves_says_so(site: Site, peer: Peer) -> None:
    await peer.send("T")

    state = content(await peer.ask(GetReplication()))

    assert (state["master"], state["haConnectionInfo"], state["inSyncSlaveNums"]) == (True, [], 0)
    assert state["masterCommitLogMaxOffset"] == site.broker.store.log_end > 0


async def test_names_that_older_tools_look_for_are_there(peer: Peer) -> None:
    runtime = content(await peer.ask(GetRuntime()))["table"]
    options = (await peer.ask(GetBrokerConfig())).body.decode().splitlines()

    assert runtime["getTransferedTps"] == runtime["getTransferredTps"]
    assert {"brokerRole=ASYNC_MASTER", "useTLS=false", "filterServerNums=0"} < set(options)
    assert any(line.startswith("clientCallbackExecutorThreads=") for line in options)
