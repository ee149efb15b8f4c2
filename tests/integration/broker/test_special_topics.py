"""Topics with special rules: kept in memory, or forbidden to a group."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.clock import ManualClock
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.groups import ForbidReading
from orbitmq.protocol.requests.offsets import CommitOffset, GetCommittedOffset
from tests.integration.broker.conftest import Peer, Site, running


async def test_a_delayed_message_arrives_in_a_memory_topic_with_its_delay_level(
    site: Site, peer: Peer
) -> None:
    await peer.make_memory_topic("ticks")

    reply = await peer.send("ticks", b"later", DELAY="1", own="kept")
    await site.stored("ticks", 0, 1)
    (message,) = await peer.read("ticks")

    assert reply.code == ResponseCode.SUCCESS, reply.remark
    assert message.body == b"later"
    assert message.properties["own"] == "kept"
    assert message.properties["DELAY"] == "1"
    assert message.properties["REAL_TOPIC"] == "ticks"


async def test_offsets_in_a_memory_topic_are_not_lowered_when_the_broker_restarts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path, ManualClock()) as site:
        peer = await site.connect()
        await peer.make_memory_topic("ticks")
        for _ in range(3):
            assert (await peer.send("ticks")).code == 0
        offset = CommitOffset(consumer_group="g", topic="ticks", queue_id=0, commit_offset=Long(3))
        assert (await peer.ask(offset)).code == 0

    async with running(tmp_path, ManualClock()) as site:
        peer = await site.connect()
        found = await peer.ask(GetCommittedOffset(consumer_group="g", topic="ticks", queue_id=0))

    assert found.fields["offset"] == "3"
    assert not [line for line in caplog.messages if "lowered" in line]


async def test_pulls_of_a_group_that_may_not_read_a_topic_are_refused(peer: Peer) -> None:
    await peer.make_topic("T")
    await peer.send("T", b"body")

    await peer.ask(ForbidReading(group="g", topic="T", readable=False))
    refused = await peer.pull("T", 0)
    of_another_group = await peer.pull("T", 0, group="other")
    await peer.ask(ForbidReading(group="g", topic="T", readable=True))
    allowed = await peer.pull("T", 0)

    assert refused.code == ResponseCode.NO_PERMISSION
    assert refused.fields["forbiddenType"] == "5"
    assert refused.remark == "the group 'g' may not read the topic 'T'"
    assert of_another_group.code == allowed.code == ResponseCode.SUCCESS
