"""A sync master acknowledges what its slaves have, and says so when they do not."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from orbitmq.clock import ManualClock
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.requests.sending import SendReply
from tests.integration.replication.group import Group
from tests.waiting import until

SYNC = {"brokerRole": "SYNC_MASTER"}
_MODES = ["SYNC_FLUSH", "ASYNC_FLUSH"]


async def test_a_master_that_starts_gives_slaves_time_before_it_warns(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    async with Group(tmp_path, clock=clock) as group:
        master = await group.start(0, brokerRole="SYNC_MASTER", slaveTimeout="3000")
        gate = master.replication.gate
        assert gate is not None

        await clock.advance(2_800)
        assert gate.is_short
        assert "sends do not wait for slaves" not in caplog.text
        await clock.advance(10_000)

    assert caplog.text.count("sends do not wait for slaves") == 1


async def test_a_master_that_stops_warns_of_no_slave(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with Group(tmp_path) as group:
        await group.pair(options={**SYNC, "slaveTimeout": "60000"})

        await group.stop(0)

    assert "sends do not wait for slaves" not in caplog.text


@pytest.mark.parametrize("mode", _MODES)
async def test_a_message_is_acknowledged_once_a_slave_has_it(tmp_path: Path, mode: str) -> None:
    async with Group(tmp_path) as group:
        _, slave = await group.pair(options={**SYNC, "flushDiskType": mode})
        await group.create_topic()
        gate = group.brokers[0].replication.gate
        assert gate is not None
        await until(lambda: not gate.is_short)

        for number in range(10):
            reply = await group.send(b"%d" % number)
            told = SendReply.decode(reply.fields)

            assert reply.code == ResponseCode.SUCCESS
            assert told.copies == 2
            assert slave.store.log_end == group.brokers[0].store.log_end


async def test_the_receipt_says_how_many_copies_are_on_disk(tmp_path: Path) -> None:
    async with Group(tmp_path) as group:
        await group.start(0, **SYNC, inSyncReplicas="3")
        await group.start(1)
        await group.start(2, flushDiskType="ASYNC_FLUSH")
        await group.until_linked(2)
        await group.create_topic()
        copies = group.brokers[0].replication.copies
        await until(lambda: sum(slave.is_flushed for slave in copies.slaves) == 1)

        told = SendReply.decode((await group.send()).fields)

        assert (told.durability, told.copies, told.copies_on_disk) == ("DISK", 3, 2)


async def test_without_a_slave_the_status_says_so(tmp_path: Path) -> None:
    async with Group(tmp_path) as group:
        await group.start(0, **SYNC)
        await group.create_topic()

        reply = await group.send()

        assert reply.code == ResponseCode.SLAVE_NOT_AVAILABLE
        assert SendReply.decode(reply.fields).copies == 1
        # The reply may be a moment ahead of what readers see.
        await until(lambda: group.brokers[0].store.end_of("T", 0) == 1)


async def test_a_silent_slave_costs_a_send_the_timeout(tmp_path: Path) -> None:
    async with Group(tmp_path) as group:
        await group.start(0, **SYNC, slaveTimeout="500")
        await group.create_topic()
        silent = await group.connect_slave()
        await silent.report(group.brokers[0].store.log_end)
        gate = group.brokers[0].replication.gate
        assert gate is not None
        await until(lambda: not gate.is_short)

        sending = asyncio.create_task(group.send())
        await until(lambda: group.brokers[0].store.end_of("T", 0, committed=False) == 1)
        assert group.brokers[0].store.end_of("T", 0) == 0, "nobody sees what no slave has"
        reply = await sending

        assert reply.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
        await until(lambda: group.brokers[0].store.end_of("T", 0) == 1)


async def test_sends_are_refused_without_slaves_if_they_are_required(tmp_path: Path) -> None:
    async with Group(tmp_path) as group:
        await group.start(0, **SYNC, requireInSyncReplicas="true")
        await group.create_topic()

        reply = await group.send()

        assert reply.code == ResponseCode.SYSTEM_ERROR
        assert "replicas not enough" in reply.remark
        assert group.brokers[0].store.log_end == 0


async def test_a_slave_that_reports_more_than_it_was_sent_is_disconnected(tmp_path: Path) -> None:
    async with Group(tmp_path) as group:
        await group.start(0)
        await group.create_topic()
        await group.send()
        liar = await group.connect_slave()

        await liar.report(group.brokers[0].store.log_end + 1)

        assert await liar.ended()
        assert len(group.brokers[0].replication.copies) == 0


async def test_a_restarted_sync_master_shows_what_it_showed(tmp_path: Path) -> None:
    async with Group(tmp_path) as group:
        await group.start(0, **SYNC, slaveTimeout="6000")
        await group.create_topic()
        silent = await group.connect_slave()
        await silent.report(group.brokers[0].store.log_end)
        gate = group.brokers[0].replication.gate
        assert gate is not None
        await until(lambda: not gate.is_short)
        waiting = asyncio.create_task(group.send())
        await until(lambda: group.brokers[0].store.end_of("T", 0, committed=False) == 1)
        await group.kill(0)
        waiting.cancel()

        starting = asyncio.create_task(group.start(0))
        await group.start(1)
        master = await starting

        assert master.store.end_of("T", 0) == 1
        await group.until_copied()
