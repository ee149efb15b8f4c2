"""Delays, messages sent back, and dead letters: when they arrive, and what survives."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from orbitmq.clock import ManualClock, settle
from orbitmq.disk import off_loop
from orbitmq.model.groups import GroupConfig
from orbitmq.model.names import CHECKED_TOO_OFTEN_TOPIC, HALF_TOPIC, TIMER_TOPIC
from orbitmq.model.queues import MessageQueue
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.command import Command
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.retries import SendBack
from orbitmq.record.message_id import decode_message_id
from orbitmq.store.log.draft import Draft
from tests.integration.broker.conftest import Peer, Site, crash_image, running

SCHEDULE = "SCHEDULE_TOPIC_XXXX"


async def put(peer: Peer, body: bytes = b"body", **rest: str) -> int:
    """Store a message; returns its position in the log."""
    reply = await peer.send("T", body, **rest)
    assert reply.code == ResponseCode.SUCCESS, reply.remark
    return decode_message_id(reply.fields["msgId"])[2]


async def hand_back(
    peer: Peer, place: int, *, level: int = 0, retries_max: int | None = None
) -> Command:
    return await peer.ask(
        SendBack(physical_offset=Long(place), group="g", delay_level=level, retries_max=retries_max)
    )


# --- delay levels -----------------------------------------------------------------------------


async def test_a_delayed_message_arrives_after_its_delay_and_never_before(
    site: Site, peer: Peer
) -> None:
    await peer.make_topic("T")
    start_ms = site.clock.now_ms()

    reply = await peer.send("T", b"later", queue_id=2, DELAY="2", KEYS="k", TAGS="a")
    await site.stored("T", 2, 1)

    assert (reply.fields["queueId"], reply.fields["queueOffset"]) == ("2", "0")
    (message,) = await peer.read("T", queue_id=2, expression="a")
    assert message.store_ms >= start_ms + 5000
    assert (message.body, message.born_ms) == (b"later", 1_600_000_000_123)
    assert message.properties["UNIQ_KEY"] == "0A0000010000"
    assert message.properties["KEYS"] == "k"
    assert message.properties["DELAY"] == "2"
    assert message.properties["REAL_TOPIC"] == "T"
    assert message.properties["REAL_QID"] == "2"


@pytest.mark.parametrize(("asked", "level"), [("18", 18), ("99", 18), ("1", 1)])
async def test_a_level_beyond_the_last_is_the_last(
    site: Site, peer: Peer, asked: str, level: int
) -> None:
    await put(peer, DELAY=asked)

    assert site.broker.store.end_of(SCHEDULE, level - 1) == 1


@pytest.mark.parametrize("asked", ["0", "-3", "x"])
async def test_no_level_is_no_delay(site: Site, peer: Peer, asked: str) -> None:
    await put(peer, DELAY=asked)

    assert site.broker.store.end_of("T", 0) == 1


async def test_a_delayed_message_wakes_a_held_pull(site: Site, peer: Peer) -> None:
    consumer = await site.connect()
    await put(peer, b"later", DELAY="1")
    pull = asyncio.create_task(consumer.read("T", 0, hold_ms=15_000))

    await site.advance_until(pull.done)

    assert [message.body for message in await pull] == [b"later"]


@pytest.mark.parametrize("options", [{"messageDelayLevel": "2s 3s"}])
async def test_the_levels_are_configurable(site: Site, peer: Peer) -> None:
    start_ms = site.clock.now_ms()
    await put(peer, DELAY="18")

    await site.stored("T", 0, 1)

    (message,) = await peer.read("T")
    assert message.store_ms >= start_ms + 3000


async def test_delayed_messages_survive_a_stop_once_each(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running(tmp_path, clock) as site:
        peer = await site.connect()
        await put(peer, b"before", DELAY="1")
        await put(peer, b"after", DELAY="2")
        await site.stored("T", 0, 1)

    async with running(tmp_path, clock) as site:
        peer = await site.connect()
        await site.stored("T", 0, 2)
        await clock.advance(2_000)
        await settle()

        assert [message.body for message in await peer.read("T")] == [b"before", b"after"]


async def test_delayed_messages_survive_a_kill_but_may_be_repeated(tmp_path: Path) -> None:
    clock = ManualClock()
    start_ms = clock.now_ms()
    killed = tmp_path / "killed"
    # The clock moves on while a thread reads: it must reach neither the second level nor a save.
    options = {"messageDelayLevel": "1s 1m", "flushDelayOffsetInterval": "3600000"}
    async with running(tmp_path, clock, **options) as site:
        peer = await site.connect()
        await put(peer, b"before", DELAY="1")
        await put(peer, b"after", DELAY="2")
        await site.stored("T", 0, 1)
        crash_image(site, killed)

    async with running(killed, clock, **options) as site:
        peer = await site.connect()
        await site.advance_until(lambda: site.broker.store.end_of("T", 0) >= 3)
        found = await peer.read("T")

        assert [message.body for message in found] == [b"before", b"before", b"after"]
        assert found[-1].store_ms >= start_ms + 60_000


# --- sending back -----------------------------------------------------------------------------


async def test_a_message_sent_back_is_delivered_again_by_the_retry_topic(
    site: Site, peer: Peer
) -> None:
    await peer.heartbeat("c")
    start_ms = site.clock.now_ms()
    place = await put(peer, b"hard", KEYS="k", TAGS="a")

    reply = await hand_back(peer, place)
    await site.stored("%RETRY%g", 0, 1)

    assert reply.code == ResponseCode.SUCCESS, reply.remark
    (again,) = await peer.read("%RETRY%g")
    assert again.store_ms >= start_ms + 10_000
    assert (again.body, again.reconsume_times) == (b"hard", 1)
    assert again.properties["RETRY_TOPIC"] == "T"
    assert decode_message_id(again.properties["ORIGIN_MESSAGE_ID"])[2] == place
    assert again.properties["KEYS"] == "k"


async def test_the_delay_grows_with_each_retry_and_the_origin_stays(site: Site, peer: Peer) -> None:
    await peer.heartbeat("c")
    place = await put(peer)
    await hand_back(peer, place)
    await site.stored("%RETRY%g", 0, 1)
    (first,) = await peer.read("%RETRY%g")
    handed_back_ms = site.clock.now_ms()

    await hand_back(peer, first.physical_offset)
    await site.stored("%RETRY%g", 0, 2)

    second = (await peer.read("%RETRY%g"))[1]
    assert (first.properties["DELAY"], second.properties["DELAY"]) == ("3", "4")
    assert second.store_ms >= handed_back_ms + 30_000
    assert second.reconsume_times == 2
    assert second.properties["RETRY_TOPIC"] == "T"
    assert decode_message_id(second.properties["ORIGIN_MESSAGE_ID"])[2] == place


async def test_the_consumer_may_choose_the_delay(site: Site, peer: Peer) -> None:
    await peer.heartbeat("c")

    await hand_back(peer, await put(peer), level=1)

    assert site.broker.store.end_of(SCHEDULE, 0) == 1


@pytest.mark.parametrize(("level", "retries_max"), [(-1, None), (0, 0)])
async def test_a_message_without_retries_left_becomes_a_dead_letter(
    peer: Peer, level: int, retries_max: int | None
) -> None:
    await peer.heartbeat("c")
    place = await put(peer, b"hopeless")

    reply = await hand_back(peer, place, level=level, retries_max=retries_max)

    assert reply.code == ResponseCode.SUCCESS
    (dead,) = await peer.read("%DLQ%g")
    assert (dead.body, dead.reconsume_times) == (b"hopeless", 1)
    assert dead.properties["RETRY_TOPIC"] == "T"
    assert dead.properties["DELAY"] == "0"


async def test_a_delayed_message_is_retried_with_the_delay_of_its_retry(
    site: Site, peer: Peer
) -> None:
    await peer.make_topic("T")
    await peer.heartbeat("c")
    await peer.send("T", DELAY="2")
    await site.stored("T", 0, 1)
    (delivered,) = await peer.read("T")

    await hand_back(peer, delivered.physical_offset, level=1)
    await site.stored("%RETRY%g", 0, 1)
    (again,) = await peer.read("%RETRY%g")
    await hand_back(peer, again.physical_offset, level=-1)

    (dead,) = await peer.read("%DLQ%g")
    assert [m.properties["DELAY"] for m in (delivered, again, dead)] == ["2", "1", "0"]
    assert site.broker.store.end_of(SCHEDULE, 1) == site.broker.store.end_of(SCHEDULE, 0) == 1


async def test_the_group_decides_how_often_a_message_is_retried(site: Site, peer: Peer) -> None:
    await site.broker.groups.put(GroupConfig(name="g", retries_max=1))
    await peer.heartbeat("c")
    await hand_back(peer, await put(peer), level=1)
    await site.stored("%RETRY%g", 0, 1)
    (again,) = await peer.read("%RETRY%g")

    await hand_back(peer, again.physical_offset)

    (dead,) = await peer.read("%DLQ%g")
    assert dead.reconsume_times == 2


async def test_a_group_without_retry_queues_gets_no_retries(site: Site, peer: Peer) -> None:
    await site.broker.groups.put(GroupConfig(name="g", retry_queues=0))
    place = await put(peer)
    end = site.broker.store.log_end

    reply = await hand_back(peer, place)

    assert reply.code == ResponseCode.SUCCESS
    assert site.broker.store.log_end == end


async def test_an_invalid_send_back_is_refused(peer: Peer) -> None:
    place = await put(peer)

    stranger = await hand_back(peer, place)
    await peer.heartbeat("c")
    nowhere = await hand_back(peer, place + 1)

    assert stranger.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert nowhere.code == ResponseCode.SYSTEM_ERROR
    assert str(place + 1) in nowhere.remark


@pytest.mark.parametrize(
    ("kept_in", "properties"),
    [
        (HALF_TOPIC, {"TRAN_MSG": "true", "PGROUP": "producers"}),
        (TIMER_TOPIC, {"TIMER_DELAY_SEC": "86400"}),
        (SCHEDULE, {"DELAY": "18"}),
    ],
)
async def test_a_message_that_was_not_delivered_yet_cannot_be_sent_back(
    site: Site, peer: Peer, kept_in: str, properties: dict[str, str]
) -> None:
    await peer.make_topic("T")
    await peer.heartbeat("c")
    place = await put(peer, b"body", **properties)

    retry = await hand_back(peer, place, level=1)
    dead_letter = await hand_back(peer, place, level=-1)

    assert retry.code == dead_letter.code == ResponseCode.NO_PERMISSION
    assert f"{place} in the log is of the topic {kept_in!r}" in retry.remark
    assert site.broker.store.end_of(SCHEDULE, 0) == 0
    assert site.broker.store.end_of("%DLQ%g", 0) == 0


async def test_a_consumer_of_transactions_that_were_given_up_may_send_one_back(
    site: Site, peer: Peer
) -> None:
    await peer.heartbeat("c", topic=CHECKED_TOO_OFTEN_TOPIC)
    given_up = Draft(topic=CHECKED_TOO_OFTEN_TOPIC, queue_id=0, body=b"given up")
    receipt = site.broker.store.append(given_up)
    await off_loop(site.broker.store.flush)
    site.broker.store.publish()

    reply = await hand_back(peer, receipt.physical_offset, level=1)

    assert reply.code == ResponseCode.SUCCESS, reply.remark
    await site.stored("%RETRY%g", 0, 1)


# --- sent to the retry topic by the consumer itself -------------------------------------------


async def test_a_consumer_may_send_to_the_retry_topic_itself(site: Site, peer: Peer) -> None:
    await peer.heartbeat("c")

    reply = await peer.send("%RETRY%g", b"again", retries=2, DELAY="1")
    await site.stored("%RETRY%g", 0, 1)

    assert reply.code == ResponseCode.SUCCESS, reply.remark
    (message,) = await peer.read("%RETRY%g")
    assert message.reconsume_times == 2


async def test_a_message_retried_too_often_becomes_a_dead_letter_at_once(peer: Peer) -> None:
    await peer.heartbeat("c")

    await peer.send("%RETRY%g", b"dead", retries=4, retries_max=3, DELAY="5")

    (dead,) = await peer.read("%DLQ%g")
    assert dead.body == b"dead"
    assert dead.properties["DELAY"] == "-1"


async def test_a_message_of_a_group_that_consumes_in_order_becomes_a_dead_letter(
    site: Site, peer: Peer
) -> None:
    await peer.heartbeat("c")
    queue = MessageQueue(topic="T", broker_name="broker-a", queue_id=0)
    site.broker.tables.locks.lock("g", "c", [queue])

    await peer.send("%RETRY%g", b"dead", retries=1, DELAY="5")

    assert [message.body for message in await peer.read("%DLQ%g")] == [b"dead"]


async def test_a_retry_topic_of_an_unknown_group_is_refused(peer: Peer) -> None:
    reply = await peer.send("%RETRY%strangers")

    assert reply.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
