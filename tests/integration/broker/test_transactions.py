"""Transactions: prepared, committed, rolled back, and refused; through restarts and crashes."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from orbitmq.clock import ManualClock
from orbitmq.model.names import (
    HALF_DONE_TOPIC,
    HALF_TOPIC,
    TRANSACTION_GROUP,
)
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.command import Command, request
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.configuration import UpdateBrokerConfig
from orbitmq.protocol.requests.offsets import CloneOffsets, CommitOffset, ResetOffsets
from orbitmq.protocol.requests.sending import SendReply
from orbitmq.protocol.requests.topics import DeleteTopic, UpdateTopic
from orbitmq.protocol.requests.transactions import EndTransaction
from orbitmq.record.message_id import decode_message_id
from orbitmq.store.config import StoreConfig
from orbitmq.store.log.draft import Draft
from orbitmq.store.message_store import MessageStore
from tests.integration.broker.conftest import (
    Disk,
    Peer,
    Site,
    crash_image,
    pull_header,
    running,
)
from tests.waiting import until

COMMIT, ROLL_BACK, UNKNOWN = 8, 12, 0
PREPARED = 4


@dataclass(frozen=True)
class Prepared:
    """A half message, as its receipt describes it."""

    half_offset: int
    physical_offset: int
    transaction_id: str

    def end(self, outcome: int, *, group: str = "producers", **rest: Any) -> EndTransaction:
        asked = EndTransaction(
            producer_group=group,
            half_offset=Long(self.half_offset),
            physical_offset=Long(self.physical_offset),
            outcome=outcome,
            message_id=self.transaction_id,
            transaction_id=self.transaction_id,
        )
        return replace(asked, **rest)


async def prepare(
    peer: Peer, body: bytes = b"body", *, topic: str = "T", unique_id: str = "A1", **rest: Any
) -> Prepared:
    reply = await peer.send(
        topic, body, unique_id=unique_id, system_flag=PREPARED, TRAN_MSG="true", **rest
    )
    assert reply.code == 0, reply.remark
    receipt = SendReply.decode(reply.fields)
    assert receipt.transaction_id == unique_id
    return Prepared(receipt.queue_offset, decode_message_id(receipt.message_id)[2], unique_id)


async def end(peer: Peer, prepared: Prepared, outcome: int, **rest: Any) -> Command:
    return await peer.ask(prepared.end(outcome, **rest))


@pytest.fixture
async def topic(peer: Peer) -> str:
    await peer.make_topic("T")
    return "T"


@pytest.mark.usefixtures("topic")
async def test_a_half_message_is_stored_as_rocketmq_stores_it(site: Site, peer: Peer) -> None:
    prepared = await prepare(peer, queue_id=2, PGROUP="producers", TAGS="t", KEYS="k")

    assert await peer.read("T", queue_id=2) == []
    half = site.broker.store.message_at(prepared.physical_offset)
    assert half is not None
    assert (half.topic, half.queue_id, half.queue_offset) == (HALF_TOPIC, 0, prepared.half_offset)
    assert half.system_flag & 0xC == 0
    assert half.properties["REAL_TOPIC"] == "T"
    assert half.properties["REAL_QID"] == "2"
    assert half.properties["__transactionId__"] == "A1"
    assert half.properties["TRAN_MSG"] == "true"
    assert half.properties["PGROUP"] == "producers"


@pytest.mark.usefixtures("topic")
async def test_a_committed_message_is_delivered_once_with_all_it_was_sent_with(
    site: Site, peer: Peer
) -> None:
    prepared = await prepare(peer, queue_id=2, flag=7, KEYS="k")

    reply = await end(peer, prepared, COMMIT)

    assert reply.code == 0, reply.remark
    (message,) = await peer.read("T", queue_id=2)
    assert (message.body, message.flag) == (b"body", 7)
    assert message.system_flag & 0xC == COMMIT
    assert message.prepared_offset == prepared.physical_offset
    assert message.born_ms == 1_600_000_000_123
    assert message.properties["KEYS"] == "k"
    assert message.properties["UNIQ_KEY"] == "A1"
    mark = site.broker.store.read(HALF_DONE_TOPIC, 0, 0, 1)
    assert b"TAGS\x01d\x02" in mark.records[0]
    assert [m.body for m in await peer.read(HALF_DONE_TOPIC)] == [b"0"]


@pytest.mark.usefixtures("topic")
async def test_a_message_that_is_rolled_back_is_never_delivered(site: Site, peer: Peer) -> None:
    prepared = await prepare(peer)

    assert (await end(peer, prepared, ROLL_BACK)).code == 0
    reply = await end(peer, prepared, COMMIT)

    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert "ended already" in reply.remark
    assert await peer.read("T") == []
    assert len(site.broker.parts.transactions.halves) == 0


@pytest.mark.usefixtures("topic")
async def test_an_unknown_end_leaves_the_transaction_open(peer: Peer) -> None:
    prepared = await prepare(peer)

    assert (await end(peer, prepared, UNKNOWN)).code == 0
    assert await peer.read("T") == []

    assert (await end(peer, prepared, COMMIT)).code == 0
    assert len(await peer.read("T")) == 1


@pytest.mark.usefixtures("topic")
async def test_an_end_without_a_reply_is_applied_as_java_sends_it(site: Site, peer: Peer) -> None:
    prepared = await prepare(peer)

    await peer.rpc.invoke_oneway(peer.address, request(prepared.end(COMMIT)))

    await site.stored("T", 0, 1)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"group": "others"}, "producer group wrong"),
        ({"half_offset": Long(1)}, "no half message"),
        ({"half_offset": Long(-1)}, "no half message"),
        ({"half_offset": Long(2**62)}, "no half message"),
        ({"physical_offset": Long(1)}, "no half message"),
        ({"physical_offset": Long(2**62)}, "no half message"),
        ({"transaction_id": "B2"}, "not 'B2'"),
        ({"transaction_id": None, "message_id": "B2"}, "not 'B2'"),
        ({"outcome": 4}, "cannot be 4"),
    ],
)
@pytest.mark.usefixtures("topic")
async def test_the_end_of_an_unknown_or_foreign_transaction_is_refused(
    peer: Peer, change: dict[str, Any], named: str
) -> None:
    prepared = await prepare(peer)
    asked = prepared.end(COMMIT, group=change.pop("group", "producers"))

    reply = await peer.ask(replace(asked, **change))

    assert reply.code != 0
    assert named in reply.remark
    assert await peer.read("T") == []
    assert (await end(peer, prepared, COMMIT)).code == 0


@pytest.mark.usefixtures("topic")
async def test_a_transaction_is_committed_once_however_often_it_is_asked_for(peer: Peer) -> None:
    prepared = await prepare(peer)

    replies = [await end(peer, prepared, COMMIT) for _ in range(3)]

    assert [reply.code for reply in replies] == [
        0,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_ERROR,
    ]
    assert len(await peer.read("T")) == 1


# --- prepared again ---------------------------------------------------------------------------


@pytest.mark.usefixtures("topic")
async def test_a_half_message_that_is_sent_again_while_it_is_open_is_the_same_transaction(
    site: Site, peer: Peer
) -> None:
    first = await prepare(peer, queue_id=1)

    # A producer that got no reply tries another queue.
    reply = await peer.send("T", unique_id="A1", system_flag=PREPARED, TRAN_MSG="true", queue_id=2)

    again = SendReply.decode(reply.fields)
    assert (again.queue_offset, decode_message_id(again.message_id)[2]) == (
        first.half_offset,
        first.physical_offset,
    )
    assert again.queue_id == 1
    assert len(site.broker.parts.transactions.halves) == 1
    assert (await end(peer, first, COMMIT)).code == 0
    assert len(await peer.read("T", queue_id=1)) == 1


@pytest.mark.usefixtures("topic")
async def test_a_half_message_that_is_sent_again_before_it_is_on_disk_waits_for_it(
    site: Site, peer: Peer, disk: Disk
) -> None:
    disk.hold()
    try:
        first = asyncio.create_task(prepare(peer))
        await disk.held()
        again = asyncio.create_task(prepare(peer))
        await until(lambda: len(site.broker.parts.confirmations) == 2)
    finally:
        disk.release()

    assert await first == await again
    assert len(site.broker.parts.transactions.halves) == 1


@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "stopped"])
async def test_a_half_message_that_is_sent_again_after_a_restart_is_the_same_transaction(
    tmp_path: Path, *, is_killed: bool
) -> None:
    async with running(tmp_path / "before", ManualClock()) as site:
        peer = await site.connect()
        await peer.make_topic("T")
        first = await prepare(peer)
        if is_killed:
            crash_image(site, tmp_path / "after")
    folder = tmp_path / ("after" if is_killed else "before")

    async with running(folder, ManualClock()) as site:
        again = await prepare(await site.connect())

    assert again == first


@pytest.mark.parametrize(
    "rest", [{"unique_id": "A2"}, {"body": b"other"}, {"PGROUP": "others"}, {"topic": "U"}]
)
async def test_another_half_message_is_another_transaction(
    site: Site, peer: Peer, topic: str, rest: dict[str, Any]
) -> None:
    await peer.make_topic("U")
    first = await prepare(peer, topic=topic)

    other = await prepare(peer, **rest)

    assert other.half_offset == first.half_offset + 1
    assert len(site.broker.parts.transactions.halves) == 2


@pytest.mark.usefixtures("topic")
async def test_a_half_message_that_is_sent_again_after_its_end_is_a_new_transaction(
    peer: Peer,
) -> None:
    first = await prepare(peer)
    await end(peer, first, ROLL_BACK)

    again = await prepare(peer)

    assert again != first
    assert (await end(peer, again, COMMIT)).code == 0
    assert len(await peer.read("T")) == 1


@pytest.mark.usefixtures("topic")
async def test_an_end_after_the_time_that_the_producer_set_waits_for_a_check(
    site: Site, peer: Peer
) -> None:
    prepared = await prepare(peer, CHECK_IMMUNITY_TIME_IN_SECONDS="5")
    await site.clock.advance(6000)

    reply = await end(peer, prepared, COMMIT)

    assert reply.code == ResponseCode.ILLEGAL_OPERATION
    assert "limit of 5000 ms" in reply.remark
    assert (await end(peer, prepared, COMMIT, is_answer=True)).code == 0


# --- what is no half message ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rest", "named"),
    [
        ({"TRAN_MSG": "true", "DELAY": "3"}, "a delay"),
        ({"TRAN_MSG": "true", "retries": 1}, "a retry"),
        ({"TRAN_MSG": "true", "retries": 1, "DELAY": "0"}, "a retry"),
        ({"system_flag": PREPARED}, "TRAN_MSG"),
        ({"system_flag": COMMIT}, "TRAN_MSG"),
        ({"system_flag": ROLL_BACK, "TRAN_MSG": "false"}, "TRAN_MSG"),
        ({"TRAN_MSG": "true", "own": "v" * 32_540}, "no room"),
    ],
)
async def test_other_combinations_are_refused_and_not_stored(
    site: Site, peer: Peer, topic: str, rest: dict[str, Any], named: str
) -> None:
    end_before = site.broker.store.log_end

    reply = await peer.send(topic, **rest)

    assert reply.code == ResponseCode.MESSAGE_ILLEGAL
    assert named in reply.remark
    assert site.broker.store.log_end == end_before


async def test_a_delayed_retry_that_still_says_half_is_a_retry(site: Site, peer: Peer) -> None:
    # A consumer that cannot send a committed message back sends it so.
    await peer.heartbeat("c1", group="g")

    reply = await peer.send("%RETRY%g", retries=1, system_flag=PREPARED, TRAN_MSG="true", DELAY="1")

    assert reply.code == 0, reply.remark
    await site.stored("%RETRY%g", 0, 1)
    assert site.broker.store.end_of(HALF_TOPIC, 0) == 0


async def test_a_topic_in_memory_takes_no_transactions(site: Site, peer: Peer) -> None:
    made = await peer.ask(
        UpdateTopic(
            topic="M",
            template_topic="TBW102",
            read_queues=1,
            write_queues=1,
            permission=6,
            filter_type="SINGLE_TAG",
            attributes="+orbitmq.storage=memory",
        )
    )
    assert made.code == 0, made.remark

    reply = await peer.send("M", system_flag=PREPARED, TRAN_MSG="true")

    assert reply.code == ResponseCode.MESSAGE_ILLEGAL
    assert "in memory" in reply.remark
    assert site.broker.store.end_of(HALF_TOPIC, 0) == 0


async def test_a_broker_can_reject_transactions(peer: Peer, topic: str) -> None:
    await peer.ask(UpdateBrokerConfig(), b"rejectTransactionMessage=true")

    reply = await peer.send(topic, system_flag=PREPARED, TRAN_MSG="true")

    assert reply.code == ResponseCode.NO_PERMISSION


async def test_a_commit_waits_for_the_topic_if_it_was_deleted(peer: Peer, topic: str) -> None:
    prepared = await prepare(peer)
    assert (await peer.ask(DeleteTopic(topic=topic))).code == 0

    reply = await end(peer, prepared, COMMIT)

    assert reply.code == ResponseCode.TOPIC_NOT_EXIST
    assert "does not exist" in reply.remark
    await peer.make_topic(topic)
    assert (await end(peer, prepared, COMMIT)).code == 0
    assert len(await peer.read(topic)) == 1


# --- restarts ---------------------------------------------------------------------------------


@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
async def test_open_transactions_survive_a_restart(tmp_path: Path, *, is_killed: bool) -> None:
    clock = ManualClock()
    image = tmp_path / "image"
    async with running(tmp_path, clock) as site:
        peer = await site.connect()
        await peer.make_topic("T")
        prepared = [await prepare(peer, b"%d" % n, unique_id=f"A{n}") for n in range(4)]
        await end(peer, prepared[1], COMMIT)
        await end(peer, prepared[2], ROLL_BACK)
        if is_killed:
            crash_image(site, image)

    async with running(image if is_killed else tmp_path, clock) as site:
        peer = await site.connect()
        assert [half.offset for half in site.broker.parts.transactions.halves.halves.values()] == [
            0,
            3,
        ]
        for ended in prepared[1:3]:
            assert (await end(peer, ended, COMMIT)).code != 0
        assert (await end(peer, prepared[0], COMMIT)).code == 0
        assert (await end(peer, prepared[3], ROLL_BACK)).code == 0

        assert [m.body for m in await peer.read("T")] == [b"1", b"0"]


async def test_progress_is_saved_as_offsets_of_rocketmqs_group(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running(tmp_path, clock) as site:
        peer = await site.connect()
        await peer.make_topic("T")
        prepared = [await prepare(peer, unique_id=f"A{n}") for n in range(3)]
        for each in prepared[:2]:
            await end(peer, each, COMMIT)
        offsets = site.broker.offsets

        await site.advance_until(
            lambda: offsets.get(TRANSACTION_GROUP, HALF_TOPIC, 0) == 2, step_ms=1000
        )

        assert offsets.get(TRANSACTION_GROUP, HALF_DONE_TOPIC, 0) == 2
        await end(peer, prepared[2], COMMIT)
    async with running(tmp_path, clock) as site:
        assert site.broker.offsets.get(TRANSACTION_GROUP, HALF_TOPIC, 0) == 3
        assert site.broker.offsets.get(TRANSACTION_GROUP, HALF_DONE_TOPIC, 0) == 3
        assert len(site.broker.parts.transactions.halves) == 0


@pytest.mark.parametrize("way", ["commit", "pull", "reset", "skip", "clone"])
async def test_offsets_that_a_client_sets_for_the_brokers_own_group_lose_no_transaction(
    tmp_path: Path, way: str
) -> None:
    clock = ManualClock()
    async with running(tmp_path, clock) as site:
        peer = await site.connect()
        await peer.make_topic("T")
        prepared = [await prepare(peer, b"%d" % n, unique_id=f"A{n}") for n in range(3)]
        offsets = site.broker.offsets
        # The broker has saved its progress, and so does not overwrite what a client sets.
        await end(peer, prepared[0], ROLL_BACK)
        await site.advance_until(
            lambda: offsets.get(TRANSACTION_GROUP, HALF_TOPIC, 0) == 1, step_ms=1000
        )
        mine = CommitOffset(consumer_group="g", topic=HALF_TOPIC, queue_id=0, commit_offset=Long(3))
        assert (await peer.ask(mine)).code == 0
        reset = ResetOffsets(
            topic=HALF_TOPIC, group=TRANSACTION_GROUP, timestamp_ms=Long(-1), force=True
        )
        requests = {
            "commit": replace(mine, consumer_group=TRANSACTION_GROUP),
            "pull": pull_header(HALF_TOPIC, 0, group=TRANSACTION_GROUP, commit=3),
            "reset": replace(reset, timestamp_ms=Long(0), offset=Long(3), queue_id=0),
            "skip": reset,
            "clone": CloneOffsets(source_group="g", target_group=TRANSACTION_GROUP),
        }

        reply = await peer.ask(requests[way])

        assert reply.code == ResponseCode.NO_PERMISSION
        assert "'CID_RMQ_SYS_TRANS' are set by the broker only" in reply.remark
        assert offsets.get(TRANSACTION_GROUP, HALF_TOPIC, 0) == 1

    async with running(tmp_path, clock) as site:
        peer = await site.connect()
        assert (await end(peer, prepared[0], COMMIT)).code != 0
        assert (await end(peer, prepared[1], COMMIT)).code == 0
        assert (await end(peer, prepared[2], COMMIT)).code == 0
        assert [m.body for m in await peer.read("T")] == [b"1", b"2"]


async def test_the_queue_of_halves_can_be_read_with_the_brokers_own_group(peer: Peer) -> None:
    await peer.make_topic("T")
    await prepare(peer)

    (half,) = await peer.read(HALF_TOPIC, group=TRANSACTION_GROUP)

    assert half.body == b"body"


def put(folder: Path, *drafts: Draft) -> None:
    """Store records as a broker would have that was killed after them."""
    config = StoreConfig(
        root=folder / "store",
        log_file_bytes=8 << 20,
        queue_file_bytes=20_000,
        index_slots=100,
        index_entries=400,
    )
    with MessageStore(config) as store:
        for draft in drafts:
            store.put(draft)


async def test_a_commit_that_a_crash_left_without_its_mark_is_found(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running(tmp_path, clock) as site:
        peer = await site.connect()
        await peer.make_topic("T")
        prepared = [await prepare(peer, b"%d" % n, unique_id=f"A{n}") for n in range(3)]
    put(
        tmp_path,
        Draft(topic="T", body=b"other"),
        *(
            Draft(
                topic="T",
                body=b"%d" % number,
                properties=b"UNIQ_KEY\x01A%d\x02" % number,
                system_flag=COMMIT,
                prepared_offset=prepared[number].physical_offset,
            )
            for number in (0, 1)
        ),
    )

    async with running(tmp_path, clock) as site:
        peer = await site.connect()
        reply = await end(peer, prepared[1], COMMIT)

        assert "ended already" in reply.remark
        assert [m.body for m in await peer.read("T")] == [b"other", b"0", b"1"]
        assert [m.body for m in await peer.read(HALF_DONE_TOPIC)] == [b"0", b"1"]
        assert (await end(peer, prepared[2], COMMIT)).code == 0


async def test_marks_of_rocketmq_5_name_several_halves(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running(tmp_path, clock) as site:
        peer = await site.connect()
        await peer.make_topic("T")
        prepared = [await prepare(peer, unique_id=f"A{n}") for n in range(4)]
    put(
        tmp_path,
        Draft(topic=HALF_DONE_TOPIC, body=b"0,2,", properties=b"TAGS\x01d\x02"),
        Draft(topic=HALF_DONE_TOPIC, body=b"nonsense", properties=b"TAGS\x01d\x02"),
    )

    async with running(tmp_path, clock) as site:
        peer = await site.connect()
        codes = [(await end(peer, each, COMMIT)).code for each in prepared]

        assert codes == [1, 0, 1, 0]


@pytest.mark.usefixtures("topic")
async def test_the_log_is_kept_from_the_oldest_open_transaction_on(site: Site, peer: Peer) -> None:
    transactions = site.broker.parts.transactions
    await peer.send("T", b"before")
    first = await prepare(peer, unique_id="A1")
    second = await prepare(peer, unique_id="A2")
    await peer.send("T", b"after")

    await transactions.save()
    assert transactions.halves.needed_from() == first.physical_offset

    await end(peer, first, COMMIT)
    await transactions.save()
    assert transactions.halves.needed_from() == second.physical_offset

    await end(peer, second, ROLL_BACK)
    await transactions.save()
    assert transactions.halves.needed_from() == site.broker.store.log_end
