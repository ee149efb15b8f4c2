"""Exactly-once writes at a master with slaves: each step waits for the copies of a sync send."""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from orbitmq.client.aio import Admin
from orbitmq.embedded.local_broker import copy_running_store
from orbitmq.errors import TransportError
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.command import Command, request
from orbitmq.protocol.headers import Header, Long
from orbitmq.protocol.requests.staged_writes import (
    AppointCoordinator,
    BatchDecision,
    BatchStatus,
    Confirmed,
    DecideWrites,
    ListQueries,
    MoveRows,
    Part,
    QueryPage,
    StageRows,
)
from orbitmq.record.batch import BatchedMessage, encode_batch
from orbitmq.record.decode import decode_record
from tests.integration.replication.group import Group, HandSlave
from tests.waiting import until

SYNC = {"brokerRole": "SYNC_MASTER"}
NAME = "group-a"
WRITE = "a" * 32
BODIES = [b"%d" % number for number in range(5)]
PART = Part(writes={WRITE: len(BODIES)}, start=0, end=len(BODIES))


async def ask(group: Group, header: Header, body: bytes = b"") -> Command:
    return await group.rpc.invoke(group.address(), request(header, body), timeout_ms=60_000)


async def stage(group: Group) -> Command:
    header = StageRows(
        producer_group="spark",
        topic="T",
        template_topic="TBW102",
        template_queues=4,
        queue_id=0,
        system_flag=0,
        born_timestamp_ms=Long(1_600_000_000_000),
        flag=0,
        batch=True,
        write_id=WRITE,
        first_sequence=Long(0),
    )
    packed = encode_batch(BatchedMessage(0, body, b"") for body in BODIES)
    return await ask(group, header, packed)


async def appoint(group: Group) -> Command:
    return await ask(group, AppointCoordinator(query="q", candidate=NAME))


async def decide(group: Group, wait_ms: int = 30_000) -> Command:
    decision = BatchDecision(query="q", batch=0, parts={NAME: PART})
    return await ask(group, DecideWrites(wait_ms=wait_ms), msgspec.json.encode(decision))


async def move(group: Group) -> Command:
    asked = MoveRows(query="q", batch=Long(0), coordinator=NAME, digest="d")
    return await ask(group, asked, msgspec.json.encode(PART))


STEPS: dict[str, Callable[[Group], Coroutine[Any, Any, Command]]] = {
    "stage": stage, "appoint": appoint, "decide": decide, "move": move,
}  # fmt: skip


def status_of(reply: Command) -> BatchStatus:
    assert reply.code == 0, reply.remark
    return msgspec.json.decode(reply.body, type=BatchStatus)


async def listed(group: Group, broker_id: int) -> QueryPage:
    return await listed_at(group, group.address(broker_id))


async def listed_at(group: Group, address: str) -> QueryPage:
    reply = await group.rpc.call(address, ListQueries(limit=10))
    return msgspec.json.decode(reply.body, type=QueryPage)


def bodies(group: Group, broker_id: int = 0) -> Counter[bytes]:
    """The rows in queue 0 of the topic."""
    found = group.brokers[broker_id].store.read_bulk("T", 0, 0, 1000, 1 << 20)
    return Counter(decode_record(record).body for record in found.records)


async def with_hand_slave(group: Group, **options: str) -> HandSlave:
    """A sync master whose slave has what there is, and reports only what the test says."""
    await group.start(0, **SYNC, **options)
    await group.create_topic()
    slave = await group.connect_slave()
    await report_all(group, slave)
    gate = group.brokers[0].replication.gate
    assert gate is not None
    await until(lambda: not gate.is_short)
    return slave


async def report_all(group: Group, slave: HandSlave) -> None:
    await slave.report(group.brokers[0].store.log_end)


async def until_appended(group: Group, before: int) -> None:
    await until(lambda: group.brokers[0].store.log_end > before)


async def confirmed(slave: HandSlave, step: Coroutine[Any, Any, Command]) -> Command:
    """The answer to a step, while the slave copies and reports."""
    following = asyncio.create_task(slave.follow())
    try:
        return await step
    finally:
        following.cancel()
        await asyncio.wait([following])


@pytest.mark.parametrize("mode", ["SYNC_FLUSH", "ASYNC_FLUSH"])
async def test_each_step_is_answered_once_a_slave_has_it(tmp_path: Path, mode: str) -> None:
    async with Group(tmp_path) as group:
        master, slave = await group.pair(options={**SYNC, "flushDiskType": mode})
        await group.create_topic()
        gate = master.replication.gate
        assert gate is not None
        await until(lambda: not gate.is_short)

        for step in (stage, appoint, decide):
            reply = await step(group)

            assert reply.code == ResponseCode.SUCCESS, reply.remark
            assert slave.store.log_end == master.store.log_end
        assert bodies(group) == Counter(BODIES)
        await group.until_copied()
        assert bodies(group, 1) == Counter(BODIES)


@pytest.mark.parametrize("name", STEPS)
async def test_a_step_that_no_slave_has_in_time_is_not_done_and_can_be_repeated(
    tmp_path: Path, name: str
) -> None:
    async with Group(tmp_path) as group:
        slave = await with_hand_slave(group, slaveTimeout="500")
        for earlier in ("stage", "appoint"):
            if name not in ("stage", earlier):
                reply = await confirmed(slave, STEPS[earlier](group))
                assert reply.code == 0, reply.remark

        silent = await STEPS[name](group)
        assert silent.code == ResponseCode.FLUSH_SLAVE_TIMEOUT, silent.remark
        assert "retry" in silent.remark
        assert bodies(group) == Counter()

        reply = await confirmed(slave, STEPS[name](group))
        assert reply.code == 0, reply.remark
        expected = Counter(BODIES) if name in ("decide", "move") else Counter()
        await until(lambda: bodies(group) == expected)


async def test_rows_that_wait_for_slaves_are_not_moved_again(tmp_path: Path) -> None:
    async with Group(tmp_path) as group:
        slave = await with_hand_slave(group, slaveTimeout="2000")
        master = group.brokers[0].store
        for step in (stage, appoint):
            await confirmed(slave, step(group))
        # The slave has "moving" and nothing after it: rows and "moved" stay hidden.
        moving = asyncio.create_task(move(group))
        offset, content = await slave.piece()
        await slave.report(offset + len(content))
        await until(lambda: master.end_of("T", 0, committed=False) == len(BODIES))
        assert (await moving).code == ResponseCode.FLUSH_SLAVE_TIMEOUT

        codes = [(await move(group)).code for _ in range(2)]
        reply = await confirmed(slave, move(group))
        while reply.code:
            codes.append(reply.code)
            reply = await confirmed(slave, move(group))

        assert set(codes) <= {0, ResponseCode.SYSTEM_BUSY, ResponseCode.FLUSH_SLAVE_TIMEOUT}
        assert master.end_of("T", 0, committed=False) == len(BODIES)


async def test_steps_go_on_without_slaves_as_sends_do(tmp_path: Path) -> None:
    async with Group(tmp_path) as group:
        await group.pair(options=SYNC)
        await group.create_topic()
        assert (await stage(group)).code == 0
        assert (await appoint(group)).code == 0
        await group.stop(1)

        assert status_of(await decide(group)).complete
        assert bodies(group) == Counter(BODIES)


async def test_steps_are_refused_without_slaves_if_they_are_required(tmp_path: Path) -> None:
    async with Group(tmp_path) as group:
        await group.pair(options={**SYNC, "requireInSyncReplicas": "true"})
        await group.create_topic()
        gate = group.brokers[0].replication.gate
        assert gate is not None
        await until(lambda: not gate.is_short)
        for step in (stage, appoint):
            assert (await step(group)).code == 0
        await group.stop(1)
        await until(lambda: gate.is_short)
        before = group.brokers[0].store.log_end

        for step in (stage, decide):
            reply = await step(group)
            assert reply.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert "in-sync replicas not enough" in reply.remark
        assert group.brokers[0].store.log_end == before

        await group.start(1)
        await until(lambda: not gate.is_short)
        assert status_of(await decide(group)).complete
        assert bodies(group) == Counter(BODIES)


async def test_a_decision_whose_slave_stops_midway_is_completed_when_it_is_back(
    tmp_path: Path,
) -> None:
    async with Group(tmp_path) as group:
        await group.pair(options={**SYNC, "requireInSyncReplicas": "true"})
        await group.create_topic()
        gate = group.brokers[0].replication.gate
        assert gate is not None
        await until(lambda: not gate.is_short)
        for step in (stage, appoint):
            assert (await step(group)).code == 0
        deciding = asyncio.create_task(decide(group, wait_ms=0))
        await until_appended(group, group.brokers[0].store.log_end)
        await group.kill(1)
        await deciding

        await group.start(1)
        await until(lambda: not gate.is_short)
        while (reply := await decide(group)).code:
            assert reply.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert status_of(reply).complete
        assert bodies(group) == Counter(BODIES)


async def test_a_restarted_master_knows_decisions_that_its_slave_does_not_have(
    tmp_path: Path,
) -> None:
    async with Group(tmp_path) as group:
        slave = await with_hand_slave(group, slaveTimeout="1500")
        for step in (stage, appoint):
            await confirmed(slave, step(group))
        behind = group.brokers[0].store.log_end
        deciding = asyncio.create_task(decide(group))
        await until_appended(group, behind)
        await group.kill(0)
        deciding.cancel()

        starting = asyncio.create_task(group.start(0))
        silent = await connected(group, starting)
        await silent.report(behind)
        master = await starting

        # It was read though no slave has it, so that no other decision can be taken.
        assert master.store.visible >= behind
        # Its steps wait for slaves that are connected.
        silent.close()
        await until(lambda: bodies(group) == Counter(BODIES))


async def test_a_slave_tells_which_batches_it_has(tmp_path: Path) -> None:
    async with Group(tmp_path) as group:
        await group.pair()
        await group.create_topic()
        for step in (stage, appoint, decide):
            assert (await step(group)).code == 0
        await group.until_copied()

        above, below = await listed(group, 0), await listed(group, 1)

        assert above.queries == below.queries
        assert (above.from_log, below.from_log) == (False, True)
        (summary,) = below.queries
        assert (summary.batch, summary.decided, summary.moved) == (0, 0, True)
        assert summary.confirmed == {NAME: Confirmed(0, summary.digest)}


async def test_a_promotion_names_the_batches_that_it_would_undo(tmp_path: Path) -> None:
    async with Group(tmp_path) as group:
        await group.pair()
        await group.create_topic()
        assert (await appoint(group)).code == 0
        await group.until_copied()
        await group.stop(1)
        assert (await stage(group)).code == 0
        assert status_of(await decide(group)).complete
        # It does not find the log of its master.
        await group.start(1, haMasterAddress="127.0.0.1:1")

        async with Admin(namesrv=group.namesrv) as admin:
            plan = await admin.promotion.plan(NAME)

        (undone,) = plan.undone
        assert (undone.query, undone.kept, undone.last) == ("q", -1, 0)
        assert undone.known_by == group.address(0)


async def test_a_master_that_starts_tells_batches_from_its_log(tmp_path: Path) -> None:
    async with Group(tmp_path) as group:
        slave = await with_hand_slave(group, slaveTimeout="60000")
        for step in (stage, appoint):
            await confirmed(slave, step(group))
        before, address = group.brokers[0].store.log_end, group.address()
        deciding = asyncio.create_task(decide(group))
        await until_appended(group, before)
        end = group.brokers[0].store.log_end
        # As a kill leaves it; the broker itself may complete the step then, and stop.
        await asyncio.to_thread(copy_running_store, group.folder / "0", tmp_path / "image")
        slave.close()
        await deciding
        await group.stop(0)
        shutil.rmtree(group.folder / "0")
        (tmp_path / "image").rename(group.folder / "0")

        starting = asyncio.create_task(group.start(0))
        again = await connected(group, starting)
        page: QueryPage | None = None
        while page is None:
            with suppress(TransportError):
                page = await listed_at(group, address)

        # Its states are not loaded yet: an empty answer would say that they were forgotten.
        assert page.from_log
        assert [one.decided for one in page.queries] == [0]
        await again.report(end)
        await starting
        assert not (await listed(group, 0)).from_log
        again.close()
        await until(lambda: bodies(group) == Counter(BODIES))


async def connected(group: Group, starting: asyncio.Task[Any]) -> HandSlave:
    """A slave of a master that starts."""
    while True:
        try:
            return await group.connect_slave()
        except OSError:
            await asyncio.wait([starting], timeout=0.05)
