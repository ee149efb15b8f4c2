"""What the old master had not finished is finished by the promoted slave, and not done again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from orbitmq import java_json
from orbitmq.clock import ForwardClock
from orbitmq.model.names import dead_letter_topic, retry_topic
from orbitmq.model.queues import MessageQueue
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.command import Command
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.locking import LockedQueues, LockQueues, QueuesToLock
from orbitmq.protocol.requests.offsets import GetCommittedOffset
from orbitmq.protocol.requests.retries import SendBack
from orbitmq.protocol.requests.sending import RecallMessage, SendReply
from orbitmq.protocol.requests.transactions import CheckTransaction
from orbitmq.record.decode import decode_record
from orbitmq.record.message_id import decode_message_id
from orbitmq.transport.connection import Connection
from orbitmq.transport.rpc_client import RpcClient
from tests.integration.broker.conftest import Peer
from tests.integration.broker.test_transactions import COMMIT, ROLL_BACK, Prepared, end, prepare
from tests.integration.replication.group import Group
from tests.waiting import beside, until

# Long enough that nothing becomes due before the clock is moved.
SOON_MS, LATE_MS = 5_000, 120_000
SOON_LEVEL, LATE_LEVEL = "2", "6"
SYNC = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2"}
OPTIONS = {"timerWheelEnable": "true"}


class Services:
    """A group whose clock can be moved forward."""

    def __init__(self, group: Group, clock: ForwardClock) -> None:
        self.group = group
        self._clock = clock

    def peer(self, broker_id: int) -> Peer:
        """A client of one broker."""
        return Peer(self.group.address(broker_id), self.group.rpc)

    async def advance(self, milliseconds: int) -> None:
        """Let time pass."""
        await beside(self._clock.advance, milliseconds)

    async def take_over(self) -> Peer:
        """Kill the master, and promote its slave; returns a client of the new one."""
        await self.group.kill(0)
        await self.group.promote(1)
        return self.peer(1)


@pytest.fixture
async def services(tmp_path: Path) -> AsyncIterator[Services]:
    clock = ForwardClock()
    async with Group(tmp_path, clock=clock) as group:
        yield Services(group, clock)


async def send(peer: Peer, body: bytes, **rest: Any) -> SendReply:
    """Send a message that must be stored."""
    reply = await peer.send("T", body, **rest)
    assert reply.code == ResponseCode.SUCCESS, reply.remark
    return SendReply.decode(reply.fields)


async def bodies(peer: Peer, topic: str = "T") -> list[bytes]:
    """The bodies in the first queue of a topic, in their order."""
    return [message.body for message in await peer.read(topic)]


async def until_shown(services: Services, count: int, topic: str = "T", broker_id: int = 1) -> None:
    """Wait until readers see so many messages in the first queue of a topic."""
    await until(lambda: services.group.brokers[broker_id].store.end_of(topic, 0) >= count)


async def pair(services: Services, **options: str) -> Peer:
    """Start a master and its slave, which have the topic; returns a client of the master."""
    group = services.group
    await group.pair(options={**OPTIONS, **options})
    await group.create_topic()
    await until(lambda: group.brokers[1].topics.get("T") is not None)
    return services.peer(0)


# --- delays and due times -------------------------------------------------------------------------


LEVELS = ({"DELAY": SOON_LEVEL}, {"DELAY": LATE_LEVEL})
TIMES = ({"TIMER_DELAY_MS": str(SOON_MS)}, {"TIMER_DELAY_MS": str(LATE_MS)})
Waits = tuple[dict[str, str], dict[str, str]]


@pytest.mark.parametrize("waits", [LEVELS, TIMES], ids=["levels", "times"])
async def test_a_delayed_message_is_delivered_once_and_at_its_time(
    services: Services, waits: Waits
) -> None:
    soon, late = waits
    old = await pair(services)
    await send(old, b"soon", unique_id="1", **soon)
    await send(old, b"late", unique_id="2", **late)
    await services.advance(SOON_MS + 1_000)
    await until_shown(services, 1, broker_id=0)
    await services.group.until_copied()
    await until_progress(services, waits)

    new = await services.take_over()
    early = await bodies(new)
    await services.advance(LATE_MS)
    await until_shown(services, 2)
    # What would be delivered twice would be there by now.
    await services.advance(SOON_MS)

    assert early == [b"soon"]
    assert await bodies(new) == [b"soon", b"late"]


async def until_progress(services: Services, waits: Waits) -> None:
    """Wait until the slave knows that the first delayed message was delivered."""
    progress = services.group.brokers[1].tables.delays  # nothing outside shows it
    if waits is LEVELS:
        await until(lambda: progress.offset(int(SOON_LEVEL)) == 1)


@pytest.mark.parametrize("waits", [LEVELS, TIMES], ids=["levels", "times"])
async def test_a_slave_that_lags_delivers_what_it_did_not_see_delivered(
    services: Services, waits: Waits
) -> None:
    soon, late = waits
    old = await pair(services)
    await send(old, b"soon", unique_id="1", **soon)
    await send(old, b"late", unique_id="2", **late)
    await services.group.until_copied()
    await services.group.stop(1)
    await send(old, b"only the old master", unique_id="3", **late)
    await services.advance(SOON_MS + 1_000)
    await until_shown(services, 1, broker_id=0)
    await services.group.kill(0)
    await services.group.start(1)
    new = services.peer(1)

    await services.group.promote(1)
    await until_shown(services, 1)
    early = await bodies(new)
    await services.advance(LATE_MS)
    await until_shown(services, 2)

    assert early == [b"soon"]
    assert await bodies(new) == [b"soon", b"late"]


async def test_a_recalled_message_stays_recalled(services: Services) -> None:
    old = await pair(services)
    before, after, kept = [
        await send(old, b"%d" % number, unique_id=str(number), TIMER_DELAY_MS=str(LATE_MS))
        for number in range(3)
    ]
    await recall(old, before)
    await services.group.until_copied()

    new = await services.take_over()
    await recall(new, after)
    await services.advance(LATE_MS + 1_000)
    await until_shown(services, 1)
    await services.advance(SOON_MS)

    assert kept.recall_handle
    assert await bodies(new) == [b"2"]


async def recall(peer: Peer, receipt: SendReply) -> None:
    """Take a message back."""
    asked = RecallMessage(topic="T", recall_handle=receipt.recall_handle or "")
    reply = await peer.ask(asked)
    assert reply.code == ResponseCode.SUCCESS, reply.remark


# --- transactions ---------------------------------------------------------------------------------


class Checked:
    """A producer that notes which transactions it is asked about."""

    def __init__(self, address: str) -> None:
        self.asked: list[tuple[Prepared, bytes]] = []
        self.rpc = RpcClient(handlers={CheckTransaction.CODE: self._note})
        self.peer = Peer(address, self.rpc)

    def _note(self, _: Connection, request: Command) -> None:
        check = CheckTransaction.decode(request.fields)
        prepared = Prepared(check.half_offset, check.physical_offset, check.transaction_id or "")
        self.asked.append((prepared, decode_record(request.body).body))


async def test_open_transactions_are_checked_back_and_ended_ones_stay_ended(
    services: Services,
) -> None:
    old = await pair(services)
    done, undone, open_one = [
        await prepare(old, body, unique_id=body.decode(), PGROUP="producers")
        for body in (b"committed", b"rolled-back", b"open")
    ]
    assert (await end(old, done, COMMIT)).code == ResponseCode.SUCCESS
    assert (await end(old, undone, ROLL_BACK)).code == ResponseCode.SUCCESS
    await services.group.until_copied()

    new = await services.take_over()
    producer = Checked(new.address)
    await producer.rpc.start()
    try:
        reply = await producer.peer.heartbeat("p", group="", produces="producers")
        assert reply.code == ResponseCode.SUCCESS
        before = await bodies(new)
        await services.advance(40_000)
        await until(lambda: producer.asked)
        asked, body = producer.asked[0]
        assert (await end(new, asked, COMMIT, is_answer=True)).code == ResponseCode.SUCCESS
        await until_shown(services, 2)
        await services.advance(40_000)
    finally:
        await producer.rpc.stop()

    assert before == [b"committed"]
    assert (asked.transaction_id, body) == (open_one.transaction_id, b"open")
    assert {body for _, body in producer.asked} == {b"open"}
    assert await bodies(new) == [b"committed", b"open"]
    again = await end(new, undone, COMMIT)
    assert (again.code, await bodies(new)) != (ResponseCode.SUCCESS, [b"committed", b"open"])


async def test_a_transaction_is_ended_by_its_producer_at_the_new_master(services: Services) -> None:
    old = await pair(services)
    prepared = await prepare(old, b"open")
    await services.group.until_copied()

    new = await services.take_over()

    assert (await end(new, prepared, COMMIT)).code == ResponseCode.SUCCESS
    await until_shown(services, 1)
    assert await bodies(new) == [b"open"]


# --- groups ---------------------------------------------------------------------------------------


async def test_retries_dead_letters_and_offsets_go_on(services: Services) -> None:
    old = await pair(services)
    await old.heartbeat("c", group="g", topic="T")
    receipts = [await send(old, b"%d" % number, unique_id=str(number)) for number in range(3)]
    places = [decode_message_id(receipt.message_id)[2] for receipt in receipts]
    await send_back(old, places[0], retries_max=16)
    await send_back(old, places[1], retries_max=0)
    await services.group.commit("T", 3)
    await services.group.until_copied()
    slave = services.group.brokers[1]
    await until(lambda: slave.offsets.queues("g", "T") == {0: 3} and slave.groups.get("g"))

    new = await services.take_over()
    await new.heartbeat("c", group="g", topic="T")
    dead = await bodies(new, dead_letter_topic("g"))
    early = await bodies(new, retry_topic("g"))
    await services.advance(11_000)
    await until_shown(services, 1, retry_topic("g"))

    assert (dead, early) == ([b"1"], [])
    assert await bodies(new, retry_topic("g")) == [b"0"]
    asked = GetCommittedOffset(consumer_group="g", topic="T", queue_id=0)
    assert (await new.ask(asked)).fields["offset"] == "3"
    # The next failure counts as the second.
    (retried,) = await new.read(retry_topic("g"))
    assert retried.reconsume_times == 1


async def send_back(peer: Peer, place: int, *, retries_max: int) -> None:
    """Turn down a message."""
    asked = SendBack(physical_offset=Long(place), group="g", delay_level=0, retries_max=retries_max)
    reply = await peer.ask(asked)
    assert reply.code == ResponseCode.SUCCESS, reply.remark


async def test_queues_are_locked_at_the_new_master_by_one_client_at_a_time(
    services: Services,
) -> None:
    old = await pair(services)
    assert await lock(old, "c1") == [0]
    await send(old, b"body")
    await services.group.until_copied()
    copied = services.group.folder / "1" / "orbitmq" / "queue_locks"
    await until(lambda: copied.exists() and b"c1" in copied.read_bytes())

    new = await services.take_over()

    # The first one may still be at work.
    assert await lock(new, "c2") == []
    assert await lock(new, "c1") == [0]
    assert await lock(new, "c2") == []


async def lock(peer: Peer, client_id: str) -> list[int]:
    """Ask for the queue; returns the ids of those that the client has."""
    await peer.heartbeat(client_id, group="g", topic="T")
    queues = [MessageQueue(topic="T", broker_name="group-a", queue_id=0)]
    asked = QueuesToLock(consumer_group="g", client_id=client_id, queues=queues)
    reply = await peer.ask(LockQueues(), java_json.encode(asked))
    return sorted(queue.queue_id for queue in java_json.decode(reply.body, LockedQueues).queues)


# --- tables ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ["ASYNC_MASTER", "SYNC_MASTER"])
async def test_a_topic_that_was_created_just_before_is_kept_with_its_messages(
    services: Services, role: str
) -> None:
    old = await pair(services, **SYNC)
    master, slave = services.group.brokers[0], services.group.brokers[1]
    await until(master.replication.copies.near)
    known = slave.topics.topics
    # The topic comes with its first message, which is acknowledged before tables are copied again.
    while True:
        name = f"new-{len(known)}"
        assert (await old.send(name, b"acked", queue_id=2)).code == ResponseCode.SUCCESS
        if slave.topics.get(name) is None:
            break
        known = slave.topics.topics
    await services.group.kill(0)

    await services.group.promote(1, role=role)

    new = services.peer(1)
    (message,) = await new.read(name, queue_id=2)
    assert message.body == b"acked"
    assert (await new.send(name, b"next", queue_id=2)).fields["queueOffset"] == "1"
