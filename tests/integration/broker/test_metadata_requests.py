"""What a master answers to slaves: progress of delays and timers, tables page by page."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from orbitmq.broker.ports import FAST_LANE
from orbitmq.model.names import TIMER_TOPIC
from orbitmq.protocol.command import request
from orbitmq.protocol.headers import Header
from orbitmq.protocol.requests.groups import (
    ListGroupConfigs,
    ListGroupConfigsReply,
)
from orbitmq.protocol.requests.metadata import (
    GetTimerCheckpoint,
    GetTimerMetrics,
    ListConsumeModes,
    TimerCheckpoint,
)
from orbitmq.protocol.requests.offsets import GetDelayProgress
from orbitmq.protocol.requests.topics import (
    ListTopicConfigs,
    ListTopicConfigsReply,
)
from tests.integration.broker.conftest import WAIT_SECONDS, Peer, Site, content

NO_VERSION = {"counter": 0, "stateVersion": 0, "timestamp": 0}


async def answered(peer: Peer, header: Header) -> Any:
    """The body of an answer, asked where Java's slaves ask: at the fast lane."""
    host, _, port = peer.address.rpartition(":")
    reply = await peer.rpc.invoke(f"{host}:{int(port) + FAST_LANE}", request(header))
    assert reply.code == 0, reply.remark
    return content(reply)


async def checkpoint(peer: Peer) -> TimerCheckpoint:
    return TimerCheckpoint.decode((await peer.ask(GetTimerCheckpoint())).body)


async def test_delay_progress_tells_what_is_delivered_before_it_is_saved(
    site: Site, peer: Peer
) -> None:
    await peer.make_topic("T", read=1, write=1)
    before = await answered(peer, GetDelayProgress())
    await peer.send("T", DELAY="1")
    await site.stored("T", 0, 1)

    after = await answered(peer, GetDelayProgress())

    assert before["offsetTable"] == {str(level): 0 for level in range(1, 19)}
    assert after["offsetTable"] == before["offsetTable"] | {"1": 1}
    assert after["dataVersion"].keys() == NO_VERSION.keys()


async def test_the_timer_checkpoint_says_what_is_on_disk(site: Site, peer: Peer) -> None:
    await peer.make_topic("T", read=1, write=1)
    unused = await checkpoint(peer)
    sent_ms = site.clock.now_ms()
    await peer.send("T", TIMER_DELAY_MS="2000")
    await site.stored("T", 0, 1)

    async with asyncio.timeout(WAIT_SECONDS):
        while (found := await checkpoint(peer)).read_ms < sent_ms + 2000:
            await site.clock.advance(100)

    assert unused == TimerCheckpoint()
    assert found.queue_offset == found.master_queue_offset == 1
    assert site.broker.store.end_of(TIMER_TOPIC, 0) == 1
    assert found.timer_log_end > 0
    assert found.data_version.counter > 0
    check = site.folder / "store" / "config" / "timercheck"
    assert check.read_bytes()[:56] == found.encode()


async def test_counts_of_timers_and_modes_of_groups_are_empty(peer: Peer) -> None:
    counts = await answered(peer, GetTimerMetrics())
    modes = await answered(peer, ListConsumeModes())

    assert counts == {"dataVersion": NO_VERSION, "timingCount": {}}
    assert modes == {"messageRequestModeMap": {}}


async def test_topics_come_page_by_page_if_asked_for(site: Site, peer: Peer) -> None:
    names: list[str] = []
    total = len(names) + 1
    while len(names) < total:
        asked = ListTopicConfigs(first=len(names), topics_max=4, data_version="")
        reply = await peer.ask(asked)
        page: Mapping[str, Any] = content(reply)["topicConfigTable"]
        total = ListTopicConfigsReply.decode(reply.fields).topic_count or 0
        # A slave of Java's takes a table without its last topic for complete.
        assert len(names) + len(page) != total - 1
        names += page
    whole = await peer.ask(ListTopicConfigs())

    assert names == list(site.broker.topics.topics)
    assert content(whole)["topicConfigTable"].keys() == set(names)
    assert ListTopicConfigsReply.decode(whole.fields).topic_count is None


async def test_groups_come_page_by_page_and_the_first_has_what_is_forbidden(
    site: Site, peer: Peer
) -> None:
    await site.broker.groups.forbid("TOOLS_CONSUMER", "T", 4)

    first = await peer.ask(ListGroupConfigs(first=0, groups_max=3, data_version=""))
    rest = await peer.ask(ListGroupConfigs(first=3, groups_max=100, data_version=""))

    groups = list(site.broker.groups.groups)
    assert ListGroupConfigsReply.decode(first.fields).group_count == len(groups)
    assert list(content(first)["subscriptionGroupTable"]) == groups[:3]
    assert list(content(rest)["subscriptionGroupTable"]) == groups[3:]
    assert content(first)["forbiddenTable"] == {"TOOLS_CONSUMER": {"T": 4}}
    assert content(rest)["forbiddenTable"] == {}
