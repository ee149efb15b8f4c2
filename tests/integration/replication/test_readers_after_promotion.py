"""Readers whose position is above the end of a promoted log: they get all that is stored there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from orbitmq.client.aio import LitePullConsumer, PullConsumer, PullStatus, PushConsumer
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.command import Command, request
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.clients import Heartbeat
from orbitmq.protocol.requests.offsets import CommitOffset
from tests.integration.broker.conftest import heartbeat_body
from tests.integration.client.consuming import QUICK, Seen
from tests.integration.client.pulling import polled, queue_of
from tests.integration.replication.group import Group
from tests.waiting import until

MOVED = ResponseCode.PULL_OFFSET_MOVED
QUEUE = queue_of("T", broker_name="group-a")
KEPT = [f"both {number}" for number in range(3)]
LOST = [f"only the old master {number}" for number in range(4)]
# More than were lost: the queue grows beyond the positions of those that read all of them.
NEW = [f"only the new master {number}" for number in range(6)]


@pytest.fixture
async def group(tmp_path: Path) -> AsyncIterator[Group]:
    async with Group(tmp_path) as group:
        yield group


async def send_all(group: Group, texts: list[str], broker_id: int = 0) -> None:
    for text in texts:
        await group.send(text.encode(), broker_id=broker_id)


async def start_with_messages_of_the_old_master(group: Group) -> None:
    """Store messages that the slave has, and later ones that it lacks."""
    await group.pair()
    await send_all(group, KEPT)
    await group.until_copied()
    await group.stop(1)
    await send_all(group, LOST)


async def promote_without_them(group: Group) -> None:
    """Kill the master, promote the slave, and store new messages there."""
    await group.kill(0)
    await group.start(1)
    await group.promote(1, force=True)
    await send_all(group, NEW, broker_id=1)


async def test_consumers_that_read_what_a_promotion_lost_get_all_new_messages(
    group: Group, caplog: pytest.LogCaptureFixture
) -> None:
    await start_with_messages_of_the_old_master(group)
    at: dict[str, Any] = {"namesrv": group.namesrv}
    quick = {name: value for name, value in QUICK.items() if name != "await_termination_ms"}
    seen = Seen()
    push = PushConsumer("push", on_message=seen.awaited, consume_from="first", **at, **QUICK)
    push.subscribe("T")
    lite = LitePullConsumer("lite", consume_from="first", **at, **quick)
    async with push, lite, PullConsumer("pull", **at) as pull:
        lite.assign([QUEUE])
        await seen.count(len(KEPT + LOST))
        assert await polled(lite, len(KEPT + LOST)) == KEPT + LOST
        read = await pull.pull(QUEUE, "*", 0)
        push.pause()
        lite.pause([QUEUE])

        await promote_without_them(group)
        # The broker forgets what it knows of the promotion.
        await group.stop(1)
        await group.start(1)
        push.resume()
        lite.resume([QUEUE])
        moved = await pull.pull(QUEUE, "*", read.next_offset)

        await seen.all_of({text.encode() for text in NEW})
        assert await polled(lite, len(NEW)) == NEW
        assert (moved.status, moved.next_offset) == (PullStatus.OFFSET_ILLEGAL, len(KEPT))
    for name in ("push", "lite", "pull"):
        assert f"group={name} topic=T broker=group-a queue=0 address=" in caplog.text
    assert caplog.text.count("offset=7 next=3") >= len(("push", "lite", "pull"))


async def test_a_foreign_consumer_that_read_what_a_promotion_lost_is_sent_back(
    group: Group, caplog: pytest.LogCaptureFixture
) -> None:
    async def commit(offset: int) -> Command:
        asked = CommitOffset(consumer_group="g", topic="T", queue_id=0, commit_offset=Long(offset))
        return await group.rpc.invoke(group.address(1), request(asked))

    async def pull(offset: int) -> Command:
        return await group.pull(1, offset, expression=None)

    await group.pair()
    await send_all(group, KEPT)
    await group.commit("T", 1)
    await group.until_copied()
    await until(lambda: group.brokers[1].offsets.get("g", "T", 0) == 1)
    await group.stop(1)
    await send_all(group, LOST)
    await promote_without_them(group)
    member = request(Heartbeat(), heartbeat_body("member"))
    assert (await group.rpc.invoke(group.address(1), member)).code == ResponseCode.SUCCESS
    old_end, kept = len(KEPT + LOST), len(KEPT)

    assert (await commit(old_end)).code == ResponseCode.INVALID_PARAMETER
    moved = await pull(old_end)
    assert (await commit(old_end)).code == ResponseCode.INVALID_PARAMETER
    read = await pull(kept)
    assert (await commit(old_end)).code == ResponseCode.SUCCESS

    assert (moved.code, moved.fields["nextBeginOffset"]) == (MOVED, str(kept))
    assert read.fields["nextBeginOffset"] == str(len(KEPT + NEW))
    assert "group=g topic=T queue=0 member=member offset=7 next=3" in caplog.text
