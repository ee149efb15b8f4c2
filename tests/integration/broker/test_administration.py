"""Requests of operators and their tools: topics, groups, offsets, messages."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from orbitmq import java_json
from orbitmq.broker.groups.committed_offsets import FILE_NAME
from orbitmq.broker.table_bounds import PER_CHANGE_MAX
from orbitmq.clock import ManualClock
from orbitmq.model.groups import GroupConfig
from orbitmq.model.topics import TopicConfig
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.command import request
from orbitmq.protocol.headers import Long
from orbitmq.protocol.languages import Language
from orbitmq.protocol.requests.groups import (
    DeleteGroup,
    GetGroupConfig,
    GroupConfigList,
    ListGroupConfigs,
    UpdateGroup,
    UpdateGroups,
)
from orbitmq.protocol.requests.offsets import (
    CloneOffsets,
    CommitOffset,
    GetAllCommittedOffsets,
    GetCommittedOffset,
    GetMaxOffset,
    GetMinOffset,
    GetOldestTime,
    ResetOffsets,
    SearchOffset,
)
from orbitmq.protocol.requests.topics import (
    DeleteTopic,
    GetTopicConfig,
    GetTopicStats,
    ListBrokerSystemTopics,
    ListTopicConfigs,
    ListTopicConsumers,
    TopicConfigList,
    UpdateTopic,
    UpdateTopics,
)
from tests.integration.broker.conftest import WAIT_SECONDS, Peer, Site, content, running

OK = ResponseCode.SUCCESS


async def commit(peer: Peer, offset: int, group: str = "g", queue_id: int = 0) -> int:
    reply = await peer.ask(
        CommitOffset(consumer_group=group, topic="T", queue_id=queue_id, commit_offset=Long(offset))
    )
    return reply.code


async def committed(
    peer: Peer, group: str = "g", topic: str = "T", *, zero: bool | None = None
) -> tuple[int, str]:
    reply = await peer.ask(
        GetCommittedOffset(consumer_group=group, topic=topic, queue_id=0, zero_if_missing=zero)
    )
    return reply.code, reply.fields.get("offset", "")


# --- topics -----------------------------------------------------------------------------------


async def test_asking_for_what_does_not_exist_yet_is_no_reason_for_a_warning(
    peer: Peer, caplog: pytest.LogCaptureFixture
) -> None:
    topic = await peer.ask(GetTopicConfig(topic="missing"))
    group = await peer.ask(GetGroupConfig(group="missing"))

    assert (topic.code, group.code) == (
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
    )
    assert [line for line in caplog.messages if "missing" in line] == []


async def test_a_topic_is_created_changed_shown_and_deleted(site: Site, peer: Peer) -> None:
    await peer.make_topic("T", read=2, write=3)
    await peer.make_topic("T", read=5, write=4)

    shown = content(await peer.ask(GetTopicConfig(topic="T")))
    listed = content(await peer.ask(ListTopicConfigs()))
    deleted = await peer.ask(DeleteTopic(topic="T"))
    missing = await peer.ask(GetTopicConfig(topic="T"))

    assert (shown["readQueueNums"], shown["writeQueueNums"], shown["perm"]) == (5, 4, 6)
    assert listed["topicConfigTable"]["T"] == shown
    assert {"dataVersion", "mappingDataVersion", "topicQueueMappingDetailMap"} <= listed.keys()
    assert deleted.code == OK
    assert missing.code == ResponseCode.TOPIC_NOT_EXIST
    assert site.broker.topics.get("T") is None


async def test_many_topics_are_created_at_once(site: Site, peer: Peer) -> None:
    topics = [TopicConfig(name=f"T{n}", read_queues=n, write_queues=n) for n in (1, 2)]

    reply = await peer.ask(UpdateTopics(), java_json.encode(TopicConfigList(topics=topics)))

    assert reply.code == OK
    assert site.broker.topics.require("T2").read_queues == 2


@pytest.mark.parametrize("name", ["SCHEDULE_TOPIC_XXXX", "TBW102", "no way", "x" * 128])
async def test_topics_of_the_broker_and_illegal_names_are_refused(peer: Peer, name: str) -> None:
    made = await peer.ask(
        UpdateTopic(
            topic=name,
            template_topic="TBW102",
            read_queues=1,
            write_queues=1,
            permission=6,
            filter_type="SINGLE_TAG",
        )
    )
    deleted = await peer.ask(DeleteTopic(topic="SCHEDULE_TOPIC_XXXX"))

    assert made.code == deleted.code == ResponseCode.INVALID_PARAMETER
    assert made.remark


async def test_the_offsets_of_a_deleted_topic_are_deleted(site: Site, peer: Peer) -> None:
    await peer.send("T")
    await commit(peer, 1)

    await peer.ask(DeleteTopic(topic="T"))

    assert site.broker.offsets.get("g", "T", 0) is None
    assert site.broker.store.end_of("T", 0) == 0
    assert (await peer.send("T")).fields["queueOffset"] == "0"


@pytest.mark.parametrize("name", ["NoSuch", "x" * 200_000, "../config", "..", "a/b"])
async def test_deleting_a_topic_that_never_was_leaves_nothing_behind(
    site: Site, peer: Peer, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    def files() -> set[Path]:
        return {path for path in (site.folder / "store").rglob("*") if path.is_file()}

    before = files()

    reply = await peer.ask(DeleteTopic(topic=name))

    assert reply.code == OK
    assert files() == before
    assert "failed" not in caplog.text


async def test_a_topic_that_is_being_deleted_is_not_created_again(
    site: Site, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await peer.send("T")
    clears, goes_on = asyncio.Event(), threading.Event()
    loop, delete_topic = asyncio.get_running_loop(), site.broker.store.delete_topic

    def delete_when_told(topic: str) -> None:
        loop.call_soon_threadsafe(clears.set)
        assert goes_on.wait(WAIT_SECONDS)
        delete_topic(topic)

    monkeypatch.setattr(site.broker.store, "delete_topic", delete_when_told)
    deletion = asyncio.create_task(peer.ask(DeleteTopic(topic="T")))
    await clears.wait()

    meanwhile = await peer.send("T", b"lost if it were taken")
    goes_on.set()

    assert (await deletion).code == OK
    assert meanwhile.code == ResponseCode.TOPIC_NOT_EXIST
    assert "is being deleted" in (meanwhile.remark or "")
    assert (await peer.send("T", b"kept")).code == OK
    assert [message.body for message in await peer.read("T")] == [b"kept"]


async def test_bounds_and_consumers_of_a_topic_are_shown(site: Site, peer: Peer) -> None:
    await peer.make_topic("T", read=2, write=3)
    for _ in range(4):
        await peer.send("T", queue_id=1)
    await commit(peer, 2, group="before", queue_id=1)
    await peer.heartbeat("c", group="now")

    stats = await peer.ask(GetTopicStats(topic="T"))
    consumers = content(await peer.ask(ListTopicConsumers(topic="T")))
    missing = await peer.ask(GetTopicStats(topic="NoSuch"))
    system = content(await peer.ask(ListBrokerSystemTopics()))

    assert stats.body.count(b'"brokerName":"broker-a"') == 3
    assert b'{"lastUpdateTimestamp":%d,"maxOffset":4,"minOffset":0}' % site.clock.now_ms() in (
        stats.body
    )
    assert consumers["groupList"] == ["before", "now"]
    assert missing.code == ResponseCode.TOPIC_NOT_EXIST
    assert "TBW102" in system["topicList"]
    assert "T" not in system["topicList"]


# --- groups -----------------------------------------------------------------------------------


async def test_a_group_is_created_changed_shown_and_deleted(peer: Peer) -> None:
    made = await peer.ask(UpdateGroup(), java_json.encode(GroupConfig(name="g", retries_max=5)))
    more = await peer.ask(
        UpdateGroups(), java_json.encode(GroupConfigList(groups=[GroupConfig(name="g2")]))
    )
    shown = content(await peer.ask(GetGroupConfig(group="g")))
    listed = content(await peer.ask(ListGroupConfigs()))
    deleted = await peer.ask(DeleteGroup(group="g"))
    missing = await peer.ask(GetGroupConfig(group="g"))
    bad = await peer.ask(UpdateGroup(), java_json.encode(GroupConfig(name="no way")))

    assert made.code == more.code == deleted.code == OK
    assert (shown["groupName"], shown["retryMaxTimes"]) == ("g", 5)
    assert {"g", "g2", "TOOLS_CONSUMER"} <= listed["subscriptionGroupTable"].keys()
    assert listed["forbiddenTable"] == {}
    assert missing.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert bad.code == ResponseCode.INVALID_PARAMETER


async def test_a_deleted_group_keeps_its_offsets_unless_asked_otherwise(peer: Peer) -> None:
    await peer.send("T")
    await peer.heartbeat("c")
    await commit(peer, 1)

    await peer.ask(DeleteGroup(group="g"))
    kept = await committed(peer)
    await peer.ask(DeleteGroup(group="g", clean_offsets=True))
    gone = await committed(peer, zero=False)

    assert kept == (OK, "1")
    assert gone[0] == ResponseCode.QUERY_NOT_FOUND


# --- committed offsets ------------------------------------------------------------------------


async def test_offsets_are_committed_by_pulls_and_by_themselves(peer: Peer) -> None:
    for _ in range(3):
        await peer.send("T")

    nothing = await committed(peer, zero=False)
    at_start = await committed(peer)
    await peer.pull("T", 0, commit=1)
    by_pull = await committed(peer)
    await commit(peer, 2)
    by_itself = await committed(peer)
    gone_back = await commit(peer, 0)

    assert nothing[0] == ResponseCode.QUERY_NOT_FOUND
    assert at_start == (OK, "0")  # its first message is still there, and near
    assert by_pull == (OK, "1")
    assert by_itself == (OK, "2")
    assert (gone_back, await committed(peer)) == (OK, (OK, "0"))


async def test_a_new_group_starts_at_the_first_message_of_an_empty_queue(
    site: Site, peer: Peer
) -> None:
    """A client that gets no offset asks for the end next, and would skip what arrives meanwhile."""
    no_topic = await committed(peer)
    await peer.make_topic("T", read=1, write=1)

    empty = await committed(peer)
    await peer.send("T")
    with_one = await committed(peer)

    assert no_topic[0] == ResponseCode.QUERY_NOT_FOUND
    assert empty == with_one == (OK, "0")
    assert (await committed(peer, zero=False))[0] == ResponseCode.QUERY_NOT_FOUND
    assert site.broker.offsets.get("g", "T", 0) is None


async def test_a_negative_offset_of_a_go_client_commits_nothing(peer: Peer) -> None:
    await peer.send("T")
    await commit(peer, 1)

    answered = await commit(peer, -1)
    by_pull = await peer.pull("T", 0, commit=-1)

    assert answered == by_pull.code == OK
    assert await commit(peer, -2) == ResponseCode.INVALID_PARAMETER
    assert await committed(peer) == (OK, "1")


async def test_commits_to_unknown_topics_and_groups_are_refused(peer: Peer) -> None:
    assert await commit(peer, 1) == ResponseCode.TOPIC_NOT_EXIST
    await peer.make_topic("T")
    assert await commit(peer, 0, queue_id=-1) == ResponseCode.INVALID_PARAMETER
    assert await commit(peer, 0, queue_id=4) == ResponseCode.INVALID_PARAMETER
    assert await commit(peer, 0, queue_id=3) == OK
    assert await commit(peer, 1, group="no way") == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


async def test_an_offset_above_the_end_is_not_committed_and_logged_once(
    site: Site, peer: Peer, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        await peer.send("T")
    await commit(peer, 2)

    refused = await peer.ask(
        CommitOffset(consumer_group="g", topic="T", queue_id=0, commit_offset=Long(4))
    )
    again = await commit(peer, 2**62)
    by_pull = await peer.pull("T", 0, commit=4)

    assert refused.code == again == ResponseCode.INVALID_PARAMETER
    assert "4 is outside of queue 0 of the topic 'T'" in refused.remark
    assert "its offsets go from 0 to 3" in refused.remark
    assert by_pull.code == OK
    assert await committed(peer) == (OK, "2")
    assert [line for line in caplog.messages if "4" in line and "above the end" in line] == [
        "offset above the end refused group=g topic=T queue=0 offset=4 end=3 sender=None"
    ]
    assert len([line for line in caplog.messages if "above the end" in line]) == 1
    assert await commit(peer, 3) == OK
    assert site.broker.offsets.refused_commits == 3


async def test_a_queue_that_the_topic_lost_can_still_be_committed(peer: Peer) -> None:
    await peer.make_topic("T", read=4, write=4)
    await peer.send("T", queue_id=3)
    await peer.make_topic("T", read=2, write=2)

    assert await commit(peer, 1, queue_id=3) == OK
    assert await commit(peer, 0, queue_id=2) == ResponseCode.INVALID_PARAMETER


async def test_offsets_above_the_end_that_a_crash_left_skip_no_later_message(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path, ManualClock()) as site:
        peer = await site.connect()
        for _ in range(3):
            await peer.send("T")
    table = tmp_path / "store" / "config" / FILE_NAME
    table.write_text('{"offsetTable":{"T@g":{0:9},"T@sound":{0:3},"gone@g":{0:9}}}')

    async with running(tmp_path, ManualClock()) as site:
        peer = await site.connect()
        for _ in range(9):
            await peer.send("T")
            await peer.send("gone")
        restored = [
            await committed(peer, group, topic)
            for group, topic in (("g", "T"), ("sound", "T"), ("g", "gone"))
        ]

    assert restored == [(OK, "3"), (OK, "3"), (OK, "0")]
    (line,) = [line for line in caplog.messages if "lowered" in line]
    assert "count=2" in line
    assert "T@g queue 0: 9 to 3; gone@g queue 0: 9 to 0" in line


async def test_a_reset_moves_the_group_and_commits_are_ignored_until_it_is_reported(
    site: Site, peer: Peer
) -> None:
    await peer.make_topic("T", read=2, write=2)
    middle_ms = 0
    for number in range(6):
        await peer.send("T")
        await site.clock.advance(1000)
        if number == 2:
            middle_ms = site.clock.now_ms()
    await peer.heartbeat("c")
    await commit(peer, 6)

    reply = await peer.ask(
        ResetOffsets(topic="T", group="g", timestamp_ms=Long(middle_ms), force=True)
    )
    before = await commit(peer, 5), await committed(peer)
    told = await peer.pull("T", 6)
    await commit(peer, 4)

    assert reply.code == OK, reply.remark
    assert b'{"brokerName":"broker-a","queueId":0,"topic":"T"}:3' in reply.body
    assert before == (OK, (OK, "3"))
    assert (told.code, told.fields["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, "3")
    assert await committed(peer) == (OK, "4")


@pytest.mark.parametrize(
    ("timestamp", "offset", "queue_id", "target"),
    [(-1, None, 0, "3"), (0, None, 0, "0"), (0, 2, 0, "2"), (0, 3, 0, "3"), (10**15, -1, -1, "3")],
)
async def test_a_reset_goes_to_a_time_or_an_offset_within_the_queue(
    peer: Peer, timestamp: int, offset: int | None, queue_id: int, target: str
) -> None:
    for _ in range(3):
        await peer.send("T")
    await peer.heartbeat("c")

    await peer.ask(
        ResetOffsets(
            topic="T",
            group="g",
            timestamp_ms=Long(timestamp),
            force=True,
            queue_id=queue_id,
            offset=None if offset is None else Long(offset),
        )
    )

    assert await committed(peer) == (OK, target)


async def test_tables_are_written_once_per_request_and_changed_whole_or_not_at_all(
    site: Site, peer: Peer
) -> None:
    """A write for each of them would be quadratic: 20,000 topics in a request wrote 40 GB."""
    before = site.broker.topics.data_version.counter, site.broker.groups.data_version.counter
    topics = [TopicConfig(name=f"T{number}") for number in range(PER_CHANGE_MAX)]
    groups = [GroupConfig(name=f"g{number}") for number in range(PER_CHANGE_MAX)]

    async def put(topics: list[TopicConfig], groups: list[GroupConfig]) -> list[int]:
        replies = (
            await peer.ask(UpdateTopics(), java_json.encode(TopicConfigList(topics=topics))),
            await peer.ask(UpdateGroups(), java_json.encode(GroupConfigList(groups=groups))),
        )
        return [reply.code for reply in replies]

    too_many = await put([*topics, TopicConfig(name="U")], [*groups, GroupConfig(name="h")])
    one_bad = await put(
        [*topics[:9], TopicConfig(name="no way")], [*groups[:9], GroupConfig(name="")]
    )
    assert (site.broker.topics.get("T0"), site.broker.groups.get("g0")) == (None, None)
    accepted = await put(topics, groups)

    assert too_many == [ResponseCode.INVALID_PARAMETER, ResponseCode.NO_PERMISSION]
    assert one_bad == [ResponseCode.INVALID_PARAMETER] * 2
    assert accepted == [OK, OK]
    after = site.broker.topics.data_version.counter, site.broker.groups.data_version.counter
    assert after == (before[0] + 1, before[1] + 1)
    assert site.broker.topics.get(topics[-1].name) is not None
    assert site.broker.groups.get(groups[-1].name) is not None


@pytest.mark.parametrize("queue_id", [0, -1])
async def test_a_reset_to_an_offset_outside_of_the_queue_is_refused_with_its_range(
    peer: Peer, queue_id: int
) -> None:
    for _ in range(3):
        await peer.send("T")
    await peer.heartbeat("c")
    await commit(peer, 1)

    refused = await peer.ask(
        ResetOffsets(
            topic="T",
            group="g",
            timestamp_ms=Long(0),
            force=True,
            queue_id=queue_id,
            offset=Long(4),
        )
    )

    assert refused.code == ResponseCode.INVALID_PARAMETER
    assert "4 is outside of queue 0" in refused.remark
    assert "from 0 to 3" in refused.remark
    assert await committed(peer) == (OK, "1")


async def test_a_reset_of_unknown_topics_and_groups_is_refused(peer: Peer) -> None:
    asked = ResetOffsets(topic="T", group="g", timestamp_ms=Long(0), force=True)
    no_topic = await peer.ask(asked)
    await peer.make_topic("T")
    no_group = await peer.ask(asked)
    await peer.heartbeat("c")
    no_queue = await peer.ask(
        ResetOffsets(topic="T", group="g", timestamp_ms=Long(0), force=True, queue_id=9)
    )

    assert no_topic.code == ResponseCode.TOPIC_NOT_EXIST
    assert no_group.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert no_queue.code == ResponseCode.INVALID_PARAMETER


async def test_consumers_in_cpp_get_a_list(peer: Peer) -> None:
    await peer.send("T")
    await peer.heartbeat("c")
    asked = request(ResetOffsets(topic="T", group="g", timestamp_ms=Long(0), force=True))
    asked.language = Language.CPP

    reply = await peer.rpc.invoke(peer.address, asked)

    assert isinstance(content(reply)["offsetTable"], list)


async def test_offsets_are_cloned_and_listed(peer: Peer) -> None:
    await peer.send("T")
    await commit(peer, 1)

    reply = await peer.ask(CloneOffsets(source_group="g", target_group="copy", topic="T"))
    everything = content(await peer.ask(GetAllCommittedOffsets()))

    no_group = await peer.ask(CloneOffsets(source_group="g", target_group="no way", topic="T"))

    assert reply.code == OK
    assert no_group.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert await committed(peer, "copy") == (OK, "1")
    assert everything["offsetTable"] == {"T@g": {"0": 1}, "T@copy": {"0": 1}}


# --- queues -----------------------------------------------------------------------------------


async def test_bounds_of_a_queue_and_its_offset_at_a_time(site: Site, peer: Peer) -> None:
    start_ms = site.clock.now_ms()
    for _ in range(3):
        await peer.send("T")
        await site.clock.advance(1000)

    async def at(time_ms: int, boundary: str | None = None) -> str:
        reply = await peer.ask(
            SearchOffset(topic="T", queue_id=0, timestamp_ms=Long(time_ms), boundary=boundary)
        )
        return reply.fields["offset"]

    end = await peer.ask(GetMaxOffset(topic="T", queue_id=0))
    start = await peer.ask(GetMinOffset(topic="T", queue_id=0))
    oldest = await peer.ask(GetOldestTime(topic="T", queue_id=0))
    none = await peer.ask(GetMaxOffset(topic="NoSuch", queue_id=0))
    no_time = await peer.ask(GetOldestTime(topic="NoSuch", queue_id=0))

    assert (start.fields["offset"], end.fields["offset"]) == ("0", "3")
    assert oldest.fields["timestamp"] == str(start_ms)
    assert (none.fields["offset"], no_time.fields["timestamp"]) == ("0", "-1")
    assert [await at(start_ms + ms) for ms in (-5, 0, 500, 2000, 9000)] == ["0", "0", "1", "2", "3"]
    assert [await at(start_ms + ms, "UPPER") for ms in (0, 1500, 9000)] == ["0", "1", "2"]
