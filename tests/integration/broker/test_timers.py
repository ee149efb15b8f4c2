"""Messages with a due time: stored, delivered, recalled, over real sockets."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from orbitmq.clock import ManualClock
from orbitmq.model.names import TIMER_TOPIC
from orbitmq.model.recall_handles import RecallHandle
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.command import Command
from orbitmq.protocol.requests.sending import RecallMessage, RecallReply, SendReply
from tests.integration.broker.conftest import WAIT_SECONDS, Peer, Site, crash_image, running

DAY_MS = 86_400_000


async def send(peer: Peer, body: bytes = b"body", topic: str = "T", **rest: Any) -> SendReply:
    """Send a message that must be stored."""
    reply = await peer.send(topic, body, **rest)
    assert reply.code == ResponseCode.SUCCESS, reply.remark
    return SendReply.decode(reply.fields)


async def recall(peer: Peer, handle: str | None, topic: str = "T") -> Command:
    """Ask to take a message back."""
    return await peer.ask(RecallMessage(topic=topic, recall_handle=handle or ""))


async def bodies(peer: Peer, topic: str = "T") -> list[bytes]:
    """The bodies in the real queue."""
    return [message.body for message in await peer.read(topic)]


async def taken_in(site: Site) -> None:
    """Wait until the wheel has all visible messages."""
    timers = site.broker.parts.timers.timers  # nothing outside shows it yet
    async with asyncio.timeout(WAIT_SECONDS):
        while timers.behind:
            await site.clock.advance(0)


@pytest.fixture
async def topic(peer: Peer) -> str:
    await peer.make_topic("T", read=1, write=1)
    return "T"


@pytest.mark.usefixtures("topic")
@pytest.mark.parametrize(
    ("name", "value"),
    [("TIMER_DELIVER_MS", "{due}"), ("TIMER_DELAY_MS", "3500"), ("TIMER_DELAY_SEC", "3")],
)
async def test_a_message_with_a_due_time_waits_in_the_timer_topic(
    site: Site, peer: Peer, name: str, value: str
) -> None:
    now_ms = site.clock.now_ms()
    due_ms = now_ms + (3000 if name == "TIMER_DELAY_SEC" else 3500)
    value = value.format(due=due_ms)

    rest: dict[str, Any] = {name: value}
    await send(peer, **rest)

    (stored,) = await peer.read(TIMER_TOPIC)
    assert await bodies(peer) == []
    assert stored.properties[name] == value
    assert stored.properties["REAL_TOPIC"] == "T"
    assert stored.properties["REAL_QID"] == "0"
    assert int(stored.properties["TIMER_OUT_MS"]) == (due_ms - 1) // 1000 * 1000


@pytest.mark.usefixtures("topic")
async def test_it_is_delivered_at_its_time_with_its_properties(site: Site, peer: Peer) -> None:
    now_ms = site.clock.now_ms()
    await send(peer, TIMER_DELIVER_MS=str(now_ms + 1500), KEYS="k", flag=7)
    await taken_in(site)

    await site.clock.advance(1499)
    early = await bodies(peer)
    await site.clock.advance(1)
    async with asyncio.timeout(WAIT_SECONDS):
        while not site.broker.store.end_of("T", 0):
            await site.clock.advance(0)

    (message,) = await peer.read()
    assert early == []
    assert site.clock.now_ms() == now_ms + 1500
    assert (message.body, message.flag, message.properties["KEYS"]) == (b"body", 7, "k")
    assert message.properties["TIMER_ENQUEUE_MS"] == str(now_ms // 1000 * 1000)
    assert message.properties["TIMER_DEQUEUE_MS"] == str(now_ms + 1500)


@pytest.mark.usefixtures("topic")
@pytest.mark.parametrize("due", ["1", "0", "-5", "1600000000000"])
async def test_a_due_time_in_the_past_delivers_at_once(peer: Peer, due: str) -> None:
    receipt = await send(peer, TIMER_DELIVER_MS=due)

    assert await bodies(peer) == [b"body"]
    assert receipt.recall_handle is None


@pytest.mark.usefixtures("topic")
@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({"TIMER_DELIVER_MS": "soon"}, "not a number"),
        ({"TIMER_DELIVER_MS": "1e3"}, "not a number"),
        ({"TIMER_DELIVER_MS": "9" * 30}, "not a number"),
        ({"TIMER_DELAY_SEC": "259201"}, "above the limit of 259200"),
        ({"TIMER_DELAY_SEC": "9" * 17}, "above the limit of 259200"),
        ({"TIMER_DELIVER_MS": "1", "TIMER_DEL_UNIQKEY": "x"}, "too late"),
    ],
)
async def test_a_bad_due_time_is_refused_and_nothing_stored(
    site: Site, peer: Peer, properties: dict[str, Any], reason: str
) -> None:
    end = site.broker.store.log_end

    reply = await peer.send("T", **properties)

    assert reply.code == ResponseCode.MESSAGE_ILLEGAL
    assert reason in reply.remark
    assert site.broker.store.log_end == end


@pytest.mark.usefixtures("topic")
async def test_properties_that_leave_no_room_for_those_of_the_copy_are_refused(
    site: Site, peer: Peer
) -> None:
    end = site.broker.store.log_end

    reply = await peer.send("T", TIMER_DELAY_MS="5000", large="x" * 32_560)

    assert reply.code == ResponseCode.MESSAGE_ILLEGAL
    assert "above 32767" in (reply.remark or "")
    assert site.broker.store.log_end == end


@pytest.mark.usefixtures("topic")
async def test_a_delay_level_takes_precedence_over_a_due_time(site: Site, peer: Peer) -> None:
    await send(peer, DELAY="1", TIMER_DELAY_MS="100000")

    await site.stored("T", 0, 1)

    assert not site.broker.store.end_of(TIMER_TOPIC, 0)


async def test_producers_cannot_send_to_the_timer_topic(peer: Peer) -> None:
    reply = await peer.send(TIMER_TOPIC)

    assert reply.code == ResponseCode.NO_PERMISSION


@pytest.mark.usefixtures("topic")
async def test_the_receipt_has_the_handle_that_rocketmq_gives(site: Site, peer: Peer) -> None:
    due_ms = site.clock.now_ms() + 5500

    receipt = await send(peer, TIMER_DELIVER_MS=str(due_ms), unique_id="ABC")

    assert receipt.recall_handle is not None
    handle = RecallHandle.decode(receipt.recall_handle)
    assert (handle.topic, handle.broker_name, handle.unique_id) == ("T", "broker-a", "ABC")
    assert handle.time_ms == (due_ms - 1) // 1000 * 1000 + 1


@pytest.mark.usefixtures("topic")
async def test_a_recalled_message_is_not_delivered(site: Site, peer: Peer) -> None:
    due = str(site.clock.now_ms() + 5500)
    receipt = await send(peer, b"recalled", TIMER_DELIVER_MS=due, unique_id="A")
    await send(peer, b"kept", TIMER_DELIVER_MS=due, unique_id="B")

    reply = await recall(peer, receipt.recall_handle)
    await site.stored("T", 0, 1)
    await site.clock.advance(3000)

    assert reply.code == ResponseCode.SUCCESS
    assert RecallReply.decode(reply.fields).message_id == "A"
    assert await bodies(peer) == [b"kept"]


@pytest.mark.usefixtures("topic")
@pytest.mark.parametrize("marker", ["just stored", "in the wheel"])
async def test_a_recall_leaves_messages_of_other_topics_and_seconds_with_its_id(
    site: Site, peer: Peer, marker: str
) -> None:
    await peer.make_topic("OTHER", read=1, write=1)
    now_ms = site.clock.now_ms()
    await send(peer, b"later", TIMER_DELIVER_MS=str(now_ms + 2500), unique_id="A")
    await send(peer, b"other", "OTHER", TIMER_DELIVER_MS=str(now_ms + 1500), unique_id="A")
    receipt = await send(peer, b"back", TIMER_DELIVER_MS=str(now_ms + 1500), unique_id="A")

    reply = await recall(peer, receipt.recall_handle)
    if marker == "in the wheel":
        await taken_in(site)
    await site.stored("OTHER", 0, 1)
    await site.stored("T", 0, 1)
    await site.advance_until(lambda: site.clock.now_ms() > now_ms + 5000)

    assert reply.code == ResponseCode.SUCCESS
    assert (await bodies(peer), await bodies(peer, "OTHER")) == ([b"later"], [b"other"])


@pytest.mark.usefixtures("topic")
async def test_a_recall_of_an_id_with_a_space_takes_back_that_message(
    site: Site, peer: Peer
) -> None:
    due = str(site.clock.now_ms() + 2500)
    await send(peer, b"kept", TIMER_DELIVER_MS=due, unique_id="a")
    receipt = await send(peer, b"back", TIMER_DELIVER_MS=due, unique_id="a b")

    reply = await recall(peer, receipt.recall_handle)
    await site.stored("T", 0, 1)
    await site.clock.advance(3000)

    assert RecallReply.decode(reply.fields).message_id == "a b"
    assert await bodies(peer) == [b"kept"]


@pytest.mark.usefixtures("topic")
async def test_a_bad_recall_is_refused_with_its_reason(site: Site, peer: Peer) -> None:
    await peer.make_topic("OTHER")
    now_ms = site.clock.now_ms()

    def handle(**changed: Any) -> str:
        usual: dict[str, Any] = {"topic": "T", "broker_name": "broker-a", "unique_id": "A"}
        return RecallHandle(**(usual | {"time_ms": now_ms + 5000} | changed)).encode()

    illegal = ResponseCode.ILLEGAL_OPERATION
    for text, topic, code, reason in (
        ("no handle", "T", illegal, "not valid"),
        ("djEgVA==", "T", illegal, "not valid"),
        ("", "T", illegal, "not valid"),
        (handle(), "OTHER", illegal, "it is for topic 'T'"),
        (handle(broker_name="b"), "T", illegal, "it is for broker 'b'"),
        (handle(unique_id="A" * 256), "T", illegal, "above the limit of 255"),
        (handle(time_ms=now_ms), "T", illegal, "comes too late"),
        (handle(time_ms=now_ms + 4 * DAY_MS), "T", illegal, "above the limit"),
        (handle(topic="NONE"), "NONE", ResponseCode.TOPIC_NOT_EXIST, "NONE"),
    ):
        reply = await recall(peer, text, topic)
        assert (reply.code, reason in (reply.remark or "")) == (code, True), reply.remark


@pytest.mark.usefixtures("topic")
async def test_a_handle_that_names_nothing_pending_recalls_nothing(site: Site, peer: Peer) -> None:
    due_ms = site.clock.now_ms() + 1500
    await send(peer, TIMER_DELIVER_MS=str(due_ms), unique_id="A")

    other = RecallHandle(topic="T", broker_name="broker-a", time_ms=due_ms, unique_id="B")
    reply = await recall(peer, other.encode())
    await site.stored("T", 0, 1)

    assert (reply.code, await bodies(peer)) == (ResponseCode.SUCCESS, [b"body"])


@pytest.mark.usefixtures("topic")
async def test_a_clock_set_forward_delivers_what_is_due_within_a_second(
    site: Site, peer: Peer
) -> None:
    await send(peer, TIMER_DELAY_MS=str(DAY_MS // 24))
    await taken_in(site)

    site.clock.adjust(DAY_MS // 24)
    await site.clock.advance(1000)
    await site.stored("T", 0, 1)
    site.clock.adjust(-DAY_MS // 24)
    await site.clock.advance(3000)

    assert await bodies(peer) == [b"body"]


class TestWithoutRecall:
    @pytest.fixture
    def options(self) -> dict[str, str]:
        return {"recallMessageEnable": "false"}

    async def test_recalls_are_refused(self, peer: Peer) -> None:
        reply = await recall(peer, "x")

        assert reply.code == ResponseCode.NO_PERMISSION
        assert "recallMessageEnable" in (reply.remark or "")


class TestWithoutTimers:
    @pytest.fixture
    def options(self) -> dict[str, str]:
        return {"timerWheelEnable": "false"}

    @pytest.mark.usefixtures("topic")
    async def test_due_times_are_refused(self, peer: Peer) -> None:
        reply = await peer.send("T", TIMER_DELAY_MS="5000")

        assert reply.code == ResponseCode.SYSTEM_ERROR
        assert "timerWheelEnable" in (reply.remark or "")


@pytest.mark.parametrize("end", ["stop", "kill"])
async def test_pending_messages_survive_a_stop_and_a_kill_and_are_delivered_once(
    tmp_path: Path, end: str
) -> None:
    clock = ManualClock(1_700_000_000_000)
    async with running(tmp_path, clock) as site:
        peer = await site.connect()
        await peer.make_topic("T", read=1, write=1)
        for number in range(40):
            due_ms = clock.now_ms() + 500 + number * 50
            await send(peer, b"%d" % number, TIMER_DELIVER_MS=str(due_ms), unique_id=f"A{number}")
        await site.stored("T", 0, 10)
        folder = tmp_path
        if end == "kill":
            folder = tmp_path / "killed"
            crash_image(site, folder)

    async with running(folder, clock) as site:
        peer = await site.connect()
        await site.stored("T", 0, 40)
        await site.clock.advance(3000)
        found: list[bytes] = []
        while len(found) < site.broker.store.end_of("T", 0):
            found += [message.body for message in await peer.read(offset=len(found))]

    assert found == [b"%d" % number for number in range(40)]


@pytest.mark.usefixtures("topic")
async def test_pending_messages_hold_retention_back(site: Site, peer: Peer) -> None:
    await send(peer, b"first")
    await send(peer, b"later", TIMER_DELAY_MS="50000")
    pending = site.broker.store.entries(TIMER_TOPIC, 0, 0, 1)[0][0]
    await taken_in(site)
    while len(site.broker.store.parts.log.files) < 3:
        await send(peer, bytes(20_000))

    site.broker.store.delete_expired()

    assert site.broker.store.log_start <= pending
