"""Clients: heartbeats, members of groups, subscriptions that differ."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from orbitmq import java_json
from orbitmq.disk import FileModes, replace_file
from orbitmq.model.subscriptions import BROADCASTING, Subscription
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.clients import (
    CheckSubscription,
    ConsumerGroup,
    Heartbeat,
    HeartbeatBody,
    ListConsumerConnections,
    ListGroupMembers,
    ListProducerConnections,
    ListProducers,
    SubscriptionToCheck,
    UnregisterClient,
)
from orbitmq.protocol.requests.offsets import CommitOffset
from tests.integration.broker.conftest import Peer, Site, content
from tests.waiting import until


async def members(peer: Peer, group: str = "g") -> list[str]:
    reply = await peer.ask(ListGroupMembers(consumer_group=group))
    return sorted(content(reply)["consumerIdList"]) if reply.code == 0 else []


# --- coming and going -------------------------------------------------------------------------


async def test_a_heartbeat_creates_the_group_its_retry_topic_and_a_member(
    site: Site, peer: Peer
) -> None:
    reply = await peer.heartbeat("c1", produces="p")

    assert reply.code == ResponseCode.SUCCESS, reply.remark
    assert reply.fields["IS_SUPPORT_HEART_BEAT_V2"] == "true"
    assert site.broker.groups.get("g") is not None
    retry = site.broker.topics.require("%RETRY%g")
    assert (retry.read_queues, retry.permission) == (1, 6)
    assert await members(peer) == ["c1"]


async def test_members_are_notified_when_one_joins_or_leaves(site: Site) -> None:
    first, second, third = [await site.connect() for _ in range(3)]
    await first.heartbeat("c1")
    await second.heartbeat("c2")
    await until(lambda: first.told == ["g", "g"] and second.told == ["g"])

    await first.heartbeat("c1")
    await third.heartbeat("c3", group="other")
    await second.ask(UnregisterClient(client_id="c2", consumer_group="g"))
    await until(lambda: len(first.told) == 3)

    assert second.told == ["g"]
    assert await members(first) == ["c1"]


async def test_a_member_is_removed_with_its_connection(site: Site) -> None:
    first, second = await site.connect(), await site.connect()
    await first.heartbeat("c1")
    await second.heartbeat("c2")
    await until(lambda: first.told == ["g", "g"])

    await second.rpc.stop()
    await until(lambda: len(first.told) == 3)

    assert await members(first) == ["c1"]


async def test_a_member_without_heartbeats_is_removed_after_two_minutes(site: Site) -> None:
    first, silent = await site.connect(), await site.connect()
    await silent.heartbeat("c2")
    connection = await silent.rpc.connection(silent.address)

    for _ in range(7):
        await first.heartbeat("c1")
        await site.clock.advance(20_000)

    assert await members(first) == ["c1"]
    await until(lambda: connection.closed)


async def test_broadcasting_members_are_not_notified(site: Site) -> None:
    first, second = await site.connect(), await site.connect()

    await first.heartbeat("c1", model=BROADCASTING)
    await second.heartbeat("c2", model=BROADCASTING)

    assert await members(first) == ["c1", "c2"]
    assert (first.told, second.told) == ([], [])


@pytest.mark.parametrize("options", [{"notifyConsumerIdsChangedEnable": "false"}])
async def test_notifications_may_be_switched_off(peer: Peer) -> None:
    await peer.heartbeat("c1")

    assert await members(peer) == ["c1"]
    assert peer.told == []


async def test_an_invalid_heartbeat_is_refused(peer: Peer) -> None:
    broken = await peer.ask(Heartbeat(), b"{")
    nameless = await peer.heartbeat("")

    assert broken.code == ResponseCode.SYSTEM_ERROR
    assert nameless.code == ResponseCode.INVALID_PARAMETER


@pytest.mark.parametrize("options", [{"autoCreateSubscriptionGroup": "false"}])
async def test_a_heartbeat_of_an_unknown_group_is_refused_without_auto_creation(peer: Peer) -> None:
    reply = await peer.heartbeat("c1")

    assert reply.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert "autoCreateSubscriptionGroup" in reply.remark


# --- who is there -----------------------------------------------------------------------------


async def test_connections_are_shown(peer: Peer) -> None:
    await peer.heartbeat("c1", expression="a", produces="p")

    consumers = content(await peer.ask(ListConsumerConnections(consumer_group="g")))
    producers = content(await peer.ask(ListProducerConnections(producer_group="p")))
    everybody = content(await peer.ask(ListProducers()))

    (consumer,) = consumers["connectionSet"]
    assert (consumer["clientId"], consumer["language"]) == ("c1", "PYTHON")
    assert consumer["clientAddr"].startswith("127.0.0.1:")
    assert consumers["messageModel"] == "CLUSTERING"
    assert consumers["subscriptionTable"]["T"]["subString"] == "a"
    assert [shown["clientId"] for shown in producers["connectionSet"]] == ["c1"]
    # Java shows an address like this.
    (address,) = [one["clientAddr"] for one in producers["connectionSet"]]
    assert everybody["data"]["p"][0]["remoteIP"] == f"/{address}"


async def test_groups_without_clients_are_answered_as_tools_expect(peer: Peer) -> None:
    nobody = await peer.ask(ListGroupMembers(consumer_group="g"))
    offline = await peer.ask(ListConsumerConnections(consumer_group="g"))
    no_producer = await peer.ask(ListProducerConnections(producer_group="p"))

    assert nobody.code == ResponseCode.SYSTEM_ERROR
    assert offline.code == ResponseCode.CONSUMER_NOT_ONLINE
    assert no_producer.code == ResponseCode.SYSTEM_ERROR


# --- subscriptions ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "expression_type", "code"),
    [
        ("a || b", "TAG", ResponseCode.SUCCESS),
        ("a > 3", "SQL92", ResponseCode.SUCCESS),
        ("a > > 3", "SQL92", ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        ("a", "XPATH", ResponseCode.SUBSCRIPTION_PARSE_FAILED),
    ],
)
async def test_an_expression_is_checked_before_it_is_used(
    peer: Peer, expression: str, expression_type: str, code: ResponseCode
) -> None:
    subscription = Subscription(topic="T", expression=expression, expression_type=expression_type)

    reply = await peer.ask(
        CheckSubscription(),
        java_json.encode(SubscriptionToCheck(client_id="c", group="g", subscription=subscription)),
    )

    assert reply.code == code
    assert bool(reply.remark) == bool(code)


async def test_a_member_with_other_subscriptions_is_logged(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    old, new = await site.connect(), await site.connect()
    caplog.set_level(logging.WARNING)
    await old.heartbeat("old", expression="a", version=1)

    reply = await new.heartbeat("new", expression="b", version=2)

    assert reply.code == ResponseCode.SUCCESS
    assert site.broker.tables.members.differing_count == 1
    assert "subscriptions differ" in caplog.text
    assert "client=new" in caplog.text
    assert await members(old) == ["new", "old"]


@pytest.mark.parametrize("options", [{"rejectInconsistentSubscriptions": "true"}])
async def test_a_member_with_other_subscriptions_may_be_excluded(site: Site) -> None:
    old, new = await site.connect(), await site.connect()
    await old.send("T", b"a", TAGS="a")
    await old.heartbeat("old", expression="a", version=1)

    refused = await new.heartbeat("new", expression="b", version=2)
    pull = await new.pull("T", expression="b")
    still = await old.read("T", expression=None, version=1)

    assert refused.code == pull.code == ResponseCode.SUBSCRIPTION_NOT_LATEST
    for remark in (refused.remark, pull.remark):
        assert "'new'" in remark
        assert "'g'" in remark
    assert await members(old) == ["old"]
    assert [message.body for message in still] == [b"a"]


async def test_a_lower_offset_of_a_member_that_lost_the_queue_is_refused(
    site: Site, peer: Peer
) -> None:
    before, owner = await site.connect(), await site.connect()
    for _ in range(9):
        await peer.send("T")
    await before.heartbeat("before")
    await owner.heartbeat("owner")
    await before.pull("T", 0, commit=3)
    await owner.pull("T", 0, commit=8)

    def offset() -> int | None:
        return site.broker.offsets.get("g", "T", 0)

    async def commit(sender: Peer, number: int) -> None:
        await sender.ask(
            CommitOffset(consumer_group="g", topic="T", queue_id=0, commit_offset=Long(number))
        )

    await commit(before, 5)
    assert (offset(), site.broker.offsets.refused_commits) == (8, 1)
    await commit(before, 9)
    assert offset() == 9
    await commit(owner, 6)
    assert offset() == 6
    await commit(peer, 2)  # an operator's tool is no member
    assert offset() == 2


def named_groups(count: int) -> bytes:
    groups = [ConsumerGroup(group=f"g{n}", subscriptions=[]) for n in range(count)]
    return java_json.encode(HeartbeatBody(client_id="c", consumers=groups, producers=[]))


async def test_a_heartbeat_above_the_limits_creates_no_group(site: Site, peer: Peer) -> None:
    reply = await peer.ask(Heartbeat(), named_groups(1001))

    assert reply.code == ResponseCode.INVALID_PARAMETER
    assert site.broker.groups.get("g0") is None
    assert site.broker.topics.get("%RETRY%g0") is None


async def test_many_groups_of_a_heartbeat_are_created_in_few_writes(
    site: Site, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[Path] = []

    def count(path: Path, content: bytes, modes: FileModes) -> None:
        written.append(path)
        replace_file(path, content, modes)

    monkeypatch.setattr("orbitmq.broker.config_file.replace_file", count)

    reply = await peer.ask(Heartbeat(), named_groups(200))

    assert reply.code == ResponseCode.SUCCESS, reply.remark
    assert site.broker.topics.get("%RETRY%g199") is not None
    assert len(written) < 20
