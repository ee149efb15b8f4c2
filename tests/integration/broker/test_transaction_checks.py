"""Check-back: who is asked how a transaction ended, when, and how often."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from orbitmq.clock import ManualClock
from orbitmq.errors import ConnectionLostError
from orbitmq.model.names import CHECKED_TOO_OFTEN_TOPIC, HALF_TOPIC
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.command import Command
from orbitmq.protocol.requests.transactions import (
    CheckTransaction,
    CheckTransactions,
    ListTransactions,
    ResumeTransaction,
)
from orbitmq.record.decode import StoredMessage, decode_record
from orbitmq.record.message_id import encode_message_id
from orbitmq.store.log.draft import Draft
from orbitmq.transport.connection import Connection
from orbitmq.transport.rpc_client import RpcClient
from tests.integration.broker.conftest import Peer, Site, content, crash_image, running
from tests.integration.broker.test_transactions import (
    COMMIT,
    ROLL_BACK,
    Prepared,
    end,
    prepare,
    put,
)
from tests.waiting import until

INTERVAL_MS = 1_000
TIMEOUT_MS = 6_000
OPTIONS = {"transactionCheckInterval": str(INTERVAL_MS), "transactionTimeOut": "500"}


@dataclass
class Asked:
    """A check that a producer received."""

    check: CheckTransaction
    message: StoredMessage

    @property
    def prepared(self) -> Prepared:
        return Prepared(
            self.check.half_offset, self.check.physical_offset, self.check.transaction_id or ""
        )


@dataclass
class Producer:
    """A producer that only notes what it is asked."""

    peer: Peer
    asked: list[Asked] = field(default_factory=list)


@dataclass
class Group:
    """Producers of one group at a broker."""

    site: Site
    stack: AsyncExitStack

    async def join(self, client_id: str, *, group: str = "producers") -> Producer:
        asked: list[Asked] = []

        def note(_: Connection, request: Command) -> None:
            check = CheckTransaction.decode(request.fields)
            asked.append(Asked(check, decode_record(request.body)))

        rpc = await self.stack.enter_async_context(
            RpcClient(handlers={CheckTransaction.CODE: note})
        )
        peer = Peer(f"127.0.0.1:{self.site.broker.port}", rpc)
        reply = await peer.heartbeat(client_id, group="", produces=group)
        assert reply.code == 0, reply.remark
        return Producer(peer, asked)

    async def advance(self, milliseconds: int) -> None:
        """Let the clock reach a time; rounds of checks end on the way."""
        await self.site.clock.advance(milliseconds)

    async def until_asked(self, producer: Producer, count: int) -> None:
        await self.site.advance_until(lambda: len(producer.asked) >= count, step_ms=200)


@pytest.fixture
async def group(site: Site, peer: Peer) -> AsyncIterator[Group]:
    await peer.make_topic("T")
    async with AsyncExitStack() as stack:
        yield Group(site, stack)


@pytest.fixture
def options() -> dict[str, str]:
    return OPTIONS


async def test_a_producer_is_asked_about_an_open_transaction(site: Site, group: Group) -> None:
    producer = await group.join("p1")
    prepared = await prepare(producer.peer, b"b", unique_id="A1", queue_id=2, KEYS="k")

    await group.until_asked(producer, 1)

    (asked,) = producer.asked
    assert asked.check.topic == HALF_TOPIC
    assert asked.check.message_id == asked.check.transaction_id == "A1"
    assert asked.check.broker_name == "broker-a"
    assert asked.check.half_offset == prepared.half_offset + 1
    message = asked.message
    assert (message.topic, message.queue_id, message.body) == ("T", 2, b"b")
    assert message.queue_offset == asked.check.half_offset
    assert message.physical_offset == asked.check.physical_offset
    assert message.properties["PGROUP"] == "producers"
    assert message.properties["KEYS"] == "k"
    assert message.properties["TRANSACTION_CHECK_TIMES"] == "1"

    reply = await end(producer.peer, asked.prepared, COMMIT, is_answer=True)

    assert reply.code == 0, reply.remark
    (delivered,) = await producer.peer.read("T", queue_id=2)
    assert delivered.prepared_offset == asked.check.physical_offset
    assert len(site.broker.parts.transactions.halves) == 0


async def test_the_end_of_an_earlier_copy_ends_the_transaction(site: Site, group: Group) -> None:
    producer = await group.join("p1")
    prepared = await prepare(producer.peer)
    await group.until_asked(producer, 1)

    assert (await end(producer.peer, prepared, COMMIT)).code == 0
    reply = await end(producer.peer, producer.asked[0].prepared, COMMIT, is_answer=True)

    assert "ended already" in reply.remark
    assert len(await producer.peer.read("T")) == 1
    assert len(site.broker.parts.transactions.halves) == 0


async def test_another_producer_of_the_group_is_asked_once_the_first_is_gone(
    site: Site, group: Group
) -> None:
    async with AsyncExitStack() as first_stack:
        first = await Group(site, first_stack).join("p1")
        await prepare(first.peer)
    await site.advance_until(lambda: not site.broker.tables.members.producers)
    other = await group.join("x1", group="others")
    second = await group.join("p2")

    await group.until_asked(second, 1)

    assert (await end(second.peer, second.asked[0].prepared, COMMIT, is_answer=True)).code == 0
    assert len(await second.peer.read("T")) == 1
    assert other.asked == []


@pytest.mark.parametrize("options", [{**OPTIONS, "transactionCheckMax": "2"}])
async def test_open_and_ended_transactions_are_counted(
    site: Site, peer: Peer, group: Group
) -> None:
    halves = site.broker.parts.transactions.halves
    first = await prepare(peer, unique_id="A1")
    second = await prepare(peer, unique_id="A2")
    await prepare(peer, unique_id="A3")
    await site.clock.advance(100)
    figures = halves.figures()
    assert (figures.open, figures.oldest_ms) == ({"T": 3}, 100)

    await end(peer, first, COMMIT)
    await end(peer, second, ROLL_BACK)
    await group.join("p1")
    await site.advance_until(lambda: not len(halves), step_ms=200)

    figures = halves.figures()
    assert (figures.open, figures.oldest_ms) == ({}, 0)
    assert figures.committed == figures.rolled_back == {"T": 1}
    assert (figures.checks, figures.given_up) == (2, 1)


@pytest.mark.parametrize("options", [{"transactionCheckInterval": "3600000"}])
async def test_checks_on_request_use_up_one_of_the_checks_and_store_one_copy(
    site: Site, peer: Peer, group: Group
) -> None:
    producer = await group.join("p1")
    prepared = [await prepare(peer, b"%d" % n, unique_id=f"A{n}") for n in range(2)]
    halves = site.broker.parts.transactions.halves.halves

    for seconds in range(1, 21):
        replies = [await peer.ask(CheckTransactions(limit=1000)) for _ in range(3)]
        assert [content(reply)["asked"] for reply in replies] == [2, 2, 2]
        assert content(replies[-1])["clients"] == ["p1"]
        await group.until_asked(producer, 2 * seconds)
        await site.stored(HALF_TOPIC, 0, 4)
        await group.advance(1000)

    assert len(producer.asked) == 40
    assert [half.checks for half in halves.values()] == [1, 1]
    assert site.broker.store.end_of(HALF_TOPIC, 0) == 4
    assert {asked.prepared.half_offset for asked in producer.asked} == {2, 3}
    assert (await end(peer, producer.asked[-1].prepared, COMMIT, is_answer=True)).code == 0
    assert (await end(peer, prepared[0], ROLL_BACK)).code == 0
    assert [m.body for m in await peer.read("T")] == [b"1"]


async def test_a_check_on_request_after_one_of_the_broker_changes_no_count(
    site: Site, peer: Peer, group: Group
) -> None:
    producer = await group.join("p1")
    await prepare(peer)
    await group.until_asked(producer, 3)
    (half,) = site.broker.parts.transactions.halves.halves.values()
    await until(lambda: site.broker.store.end_of(HALF_TOPIC, 0) > half.offset)
    # The last check seems to be of the future, which must not put off this one.
    site.clock.adjust(-3_600_000)

    reply = await peer.ask(CheckTransactions(limit=1000))

    assert content(reply)["asked"] == 1
    await until(lambda: len(producer.asked) == 4)
    (after,) = site.broker.parts.transactions.halves.halves.values()
    assert (after.checks, after.offset) == (half.checks, half.offset)


@asynccontextmanager
async def held_threads() -> AsyncIterator[None]:
    """Hold what the broker reads in threads."""
    gate = threading.Event()
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(1))
    held = loop.run_in_executor(None, gate.wait)
    try:
        yield
    finally:
        gate.set()
        await held


@pytest.mark.parametrize("kind", [ListTransactions, CheckTransactions])
async def test_few_requests_of_tools_are_at_work_and_others_are_told_that_it_is_busy(
    site: Site, peer: Peer, group: Group, kind: type[ListTransactions | CheckTransactions]
) -> None:
    await group.join("p1")
    await prepare(peer)
    tools = site.broker.parts.transactions.open_transactions

    async with held_threads():
        asked = [asyncio.create_task(peer.ask(kind(limit=1000))) for _ in range(40)]
        await until(lambda: sum(task.done() for task in asked) == 30)
        refused = [task.result() for task in asked if task.done()]
        assert tools.requests.count == 10
    replies = await asyncio.gather(*asked)

    assert {reply.code for reply in refused} == {ResponseCode.SYSTEM_BUSY}
    assert "10 requests about open transactions are at work or wait" in refused[0].remark
    assert sorted(reply.code for reply in replies) == [0] * 10 + [ResponseCode.SYSTEM_BUSY] * 30
    assert (await peer.ask(kind(limit=1000))).code == 0
    assert tools.requests.count == 0


async def test_what_a_tool_asked_for_is_not_done_once_it_is_gone(
    site: Site, peer: Peer, group: Group
) -> None:
    producer = await group.join("p1")
    for number in range(3):
        await prepare(peer, b"%d" % number, unique_id=f"A{number}")
    tools = site.broker.parts.transactions.open_transactions

    async with held_threads():
        async with RpcClient() as rpc:
            tool = Peer(peer.address, rpc)
            asked = [
                asyncio.create_task(tool.ask(CheckTransactions(limit=1000))) for _ in range(10)
            ]
            await until(lambda: tools.requests.count == 10)
            for task in asked:
                task.cancel()
        # Those of the producer and of `peer` are left.
        await until(lambda: sum(len(each.connections) for each in site.broker.serving.servers) == 2)
    await until(lambda: tools.requests.count == 0)

    # The two at work had begun to read the first one.
    halves = site.broker.parts.transactions.halves.halves.values()
    assert sorted(bool(half.asked_ms) for half in halves) == [False, False, True]
    await until(lambda: len(producer.asked) == 1)


async def test_a_broker_that_stops_does_not_finish_what_tools_asked_for(
    site: Site, peer: Peer
) -> None:
    await peer.make_topic("T")
    for number in range(40):
        await prepare(peer, b"%d" % number, unique_id=f"A{number}")
    tools = site.broker.parts.transactions.open_transactions

    async with held_threads():
        asked = asyncio.create_task(peer.ask(ListTransactions(limit=1000)))
        await until(lambda: tools.requests.count == 1)
        stop = asyncio.create_task(site.broker.stop())
        await until(lambda: not site.broker.parts.admission.is_open)
    reply = await asked
    await stop

    assert reply.code == ResponseCode.SYSTEM_BUSY
    assert "the broker is stopping" in reply.remark


async def test_producers_of_a_group_take_turns(group: Group) -> None:
    first, second = await group.join("p1"), await group.join("p2")
    await prepare(first.peer)

    await group.until_asked(first, 2)
    await group.until_asked(second, 2)

    assert abs(len(first.asked) - len(second.asked)) <= 1


async def test_a_check_counts_only_if_it_was_sent(site: Site, peer: Peer, group: Group) -> None:
    await prepare(peer)
    rounds = 5
    await group.advance(INTERVAL_MS * rounds)
    end_before = site.broker.store.log_end

    (half,) = site.broker.parts.transactions.halves.halves.values()
    assert half.checks == 0
    assert site.broker.store.end_of(HALF_TOPIC, 0) == 1

    producer = await group.join("p1")
    await group.until_asked(producer, 1)

    assert producer.asked[0].message.properties["TRANSACTION_CHECK_TIMES"] == "1"
    assert site.broker.store.log_end > end_before


class Broken:
    """A connection that breaks when a check is written to it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.tries = 0

    def call_oneway(self, _: Command) -> None:
        self.tries += 1
        raise ConnectionLostError(self._connection.address, "it broke")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


async def test_a_check_that_could_not_be_sent_does_not_count_after_a_restart_either(
    tmp_path: Path,
) -> None:
    clock = ManualClock()
    image = tmp_path / "image"
    async with running(tmp_path, clock, **OPTIONS) as site, AsyncExitStack() as stack:
        producer = await Group(site, stack).join("p1")
        await producer.peer.make_topic("T")
        await prepare(producer.peer)
        producers = site.broker.tables.members.producers["producers"]
        (client,) = producers.values()
        broken: Any = Broken(client.connection)
        client.connection = broken
        await site.advance_until(lambda: broken.tries >= 2, step_ms=200)

        (half,) = site.broker.parts.transactions.halves.halves.values()
        assert half.checks == 0
        assert producer.asked == []
        crash_image(site, image)

    async with running(image, clock, **OPTIONS) as site, AsyncExitStack() as stack:
        group = Group(site, stack)
        second = await group.join("p2")
        await group.until_asked(second, 1)

        assert second.asked[0].message.properties["TRANSACTION_CHECK_TIMES"] == "1"


async def test_a_half_that_is_sent_again_after_a_check_is_another_transaction(
    site: Site, group: Group
) -> None:
    producer = await group.join("p1")
    first = await prepare(producer.peer)
    await group.until_asked(producer, 1)

    # The producer may be about to roll back the first, which it does not know.
    again = await prepare(producer.peer)

    assert again != first
    assert len(site.broker.parts.transactions.halves) == 2


@pytest.mark.parametrize("options", [{**OPTIONS, "transactionCheckMax": "1"}])
async def test_a_transaction_that_was_given_up_is_resumed_once(
    site: Site, peer: Peer, group: Group
) -> None:
    await prepare(peer, b"b", unique_id="A1", queue_id=2, KEYS="k")
    producer = await group.join("p1")
    await site.stored(CHECKED_TOO_OFTEN_TOPIC, 0, 1)
    (lost,) = await peer.read(CHECKED_TOO_OFTEN_TOPIC)
    resume = ResumeTransaction(message_id=lost.message_id)

    replies = await asyncio.gather(peer.ask(resume), peer.ask(resume))

    assert sorted(reply.code for reply in replies) == [0, ResponseCode.SYSTEM_ERROR]
    await group.until_asked(producer, 2)
    asked = producer.asked[-1]
    assert asked.message.properties["TRANSACTION_CHECK_TIMES"] == "1"
    assert (await end(peer, asked.prepared, COMMIT, is_answer=True)).code == 0
    (delivered,) = await peer.read("T", queue_id=2)
    assert (delivered.body, delivered.properties["KEYS"]) == (b"b", "k")
    assert "was resumed before" in (await peer.ask(resume)).remark


@pytest.mark.parametrize(
    "options", [{**OPTIONS, "transactionCheckMax": "1", "messageIndexEnable": "false"}]
)
async def test_without_the_key_index_no_transaction_that_was_given_up_is_resumed(
    site: Site, peer: Peer, group: Group
) -> None:
    await prepare(peer, b"b")
    await group.join("p1")
    await site.stored(CHECKED_TOO_OFTEN_TOPIC, 0, 1)
    (lost,) = await peer.read(CHECKED_TOO_OFTEN_TOPIC)

    reply = await peer.ask(ResumeTransaction(message_id=lost.message_id))

    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert "'A1' may have been resumed before" in reply.remark
    assert "messageIndexEnable=true" in reply.remark
    assert len(site.broker.parts.transactions.halves) == 0


async def test_checks_of_an_open_transaction_can_be_counted_from_the_start(
    site: Site, peer: Peer, group: Group
) -> None:
    producer = await group.join("p1")
    prepared = await prepare(peer)
    await group.until_asked(producer, 2)
    place = encode_message_id(site.broker.store.store_host, prepared.physical_offset)

    reply = await peer.ask(ResumeTransaction(message_id=place))

    assert reply.code == 0, reply.remark
    (half,) = site.broker.parts.transactions.halves.halves.values()
    assert half.checks == 0
    assert (await end(peer, prepared, COMMIT)).code == 0
    assert "has ended" in (await peer.ask(ResumeTransaction(message_id=place))).remark


async def test_only_what_belongs_to_a_transaction_is_resumed(site: Site, peer: Peer) -> None:
    await peer.make_topic("T")
    await peer.send("T")
    (plain,) = await peer.read("T")
    nowhere = encode_message_id(site.broker.store.store_host, 10**12)

    for message_id, named in [
        (plain.message_id, "belongs to no transaction"),
        (nowhere, "belongs to no transaction"),
        ("x", "is not a message id"),
    ]:
        reply = await peer.ask(ResumeTransaction(message_id=message_id))
        assert reply.code != 0
        assert named in reply.remark


@pytest.mark.parametrize("options", [{**OPTIONS, "frameMaxLength": "20000"}])
async def test_a_half_too_large_to_be_asked_about_holds_up_no_other(
    peer: Peer, group: Group
) -> None:
    # The request that stores it fits into a frame, the check does not.
    await prepare(peer, b"b" * 19_500, unique_id="large")
    await prepare(peer, unique_id="small")
    producer = await group.join("p1")

    await group.until_asked(producer, 2)

    assert {asked.prepared.transaction_id for asked in producer.asked} == {"small"}
    (large,) = content(await peer.ask(ListTransactions(transaction_id="large", limit=1)))[
        "transactions"
    ]
    assert (large["checks"], large["half_offset"]) == (0, 0)


@pytest.mark.parametrize("options", [{"transactionCheckInterval": str(INTERVAL_MS)}])
async def test_a_young_transaction_is_not_checked(site: Site, group: Group) -> None:
    producer = await group.join("p1")
    started_ms = site.clock.now_ms()
    await prepare(producer.peer, unique_id="usual")
    await prepare(producer.peer, unique_id="later", CHECK_IMMUNITY_TIME_IN_SECONDS="20")
    await prepare(producer.peer, unique_id="odd", CHECK_IMMUNITY_TIME_IN_SECONDS="soon")

    await group.until_asked(producer, 1)
    assert site.clock.now_ms() - started_ms >= TIMEOUT_MS
    await site.advance_until(
        lambda: any(asked.check.transaction_id == "later" for asked in producer.asked), step_ms=500
    )

    assert site.clock.now_ms() - started_ms >= 20_000
    assert any(asked.check.transaction_id == "odd" for asked in producer.asked)


@pytest.mark.parametrize("options", [{**OPTIONS, "transactionCheckMax": "3"}])
async def test_a_transaction_that_was_checked_too_often_is_given_up(
    site: Site, group: Group
) -> None:
    producer = await group.join("p1")
    await prepare(producer.peer, b"b", KEYS="k")

    await site.stored(CHECKED_TOO_OFTEN_TOPIC, 0, 1)

    assert len(producer.asked) == 3
    (given_up,) = await producer.peer.read(CHECKED_TOO_OFTEN_TOPIC)
    assert given_up.body == b"b"
    assert given_up.properties["TRANSACTION_CHECK_TIMES"] == "3"
    assert given_up.properties["REAL_TOPIC"] == "T"
    reply = await end(producer.peer, producer.asked[-1].prepared, COMMIT, is_answer=True)
    assert "ended already" in reply.remark
    assert await producer.peer.read("T") == []


@pytest.mark.parametrize("options", [{**OPTIONS, "fileReservedTime": "2"}])
async def test_a_transaction_older_than_the_log_may_get_is_given_up(
    site: Site, group: Group, peer: Peer
) -> None:
    await prepare(peer)
    site.clock.adjust(2 * 3_600_000 - 3 * INTERVAL_MS)
    await group.advance(INTERVAL_MS)
    assert len(site.broker.parts.transactions.halves) == 1

    await site.stored(CHECKED_TOO_OFTEN_TOPIC, 0, 1)

    assert len(site.broker.parts.transactions.halves) == 0


async def test_a_half_that_is_far_from_the_end_of_the_log_is_stored_again(
    site: Site, group: Group, peer: Peer
) -> None:
    await prepare(peer)
    site.broker.parts.transactions.check_back._renew_bytes = 10_000
    for _ in range(3):
        await peer.send("T", b"x" * 5_000)

    await site.stored(HALF_TOPIC, 0, 2)

    (half,) = site.broker.parts.transactions.halves.halves.values()
    assert (half.offset, half.first_offset, half.checks) == (1, 0, 0)
    producer = await group.join("p1")
    await group.until_asked(producer, 1)
    assert producer.asked[0].message.properties["TRANSACTION_CHECK_TIMES"] == "1"


@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
async def test_checks_go_on_after_a_restart(tmp_path: Path, *, is_killed: bool) -> None:
    clock = ManualClock()
    image = tmp_path / "image"
    async with running(tmp_path, clock, **OPTIONS) as site, AsyncExitStack() as stack:
        producer = await Group(site, stack).join("p1")
        await producer.peer.make_topic("T")
        prepared = await prepare(producer.peer)
        await Group(site, stack).until_asked(producer, 2)
        if is_killed:
            crash_image(site, image)

    async with (
        running(image if is_killed else tmp_path, clock, **OPTIONS) as site,
        AsyncExitStack() as stack,
    ):
        group = Group(site, stack)
        second = await group.join("p2")
        await group.until_asked(second, 1)

        assert second.asked[0].message.properties["TRANSACTION_CHECK_TIMES"] == "3"
        # The producer may still send the end that it began with.
        assert (await end(second.peer, prepared, COMMIT)).code == 0
        assert len(await second.peer.read("T")) == 1
        assert len(site.broker.parts.transactions.halves) == 0


async def test_the_end_of_a_transaction_that_a_crash_replaced_is_refused(group: Group) -> None:
    producer = await group.join("p1")
    prepared = await prepare(producer.peer, unique_id="A1")
    forged = Prepared(prepared.half_offset, prepared.physical_offset, "LOST")

    reply = await end(producer.peer, forged, COMMIT, is_answer=True)

    assert "of transaction 'A1', not 'LOST'" in reply.remark


async def test_a_half_of_another_broker_that_cannot_be_copied_holds_up_no_other(
    tmp_path: Path,
) -> None:
    clock = ManualClock()
    async with running(tmp_path, clock) as site:
        await (await site.connect()).make_topic("T")
    properties = (
        f"PGROUP\x01producers\x02UNIQ_KEY\x01A\x02REAL_TOPIC\x01T\x02own\x01{'v' * 32_700}\x02"
    )
    put(tmp_path, Draft(topic=HALF_TOPIC, body=b"large", properties=properties.encode()))

    async with running(tmp_path, clock, **OPTIONS) as site, AsyncExitStack() as stack:
        group = Group(site, stack)
        producer = await group.join("p1")
        await prepare(producer.peer, unique_id="B")
        await group.until_asked(producer, 1)

        assert producer.asked[0].check.transaction_id == "B"
        await site.stored(CHECKED_TOO_OFTEN_TOPIC, 0, 1)
        assert [m.body for m in await producer.peer.read(CHECKED_TOO_OFTEN_TOPIC)] == [b"large"]
