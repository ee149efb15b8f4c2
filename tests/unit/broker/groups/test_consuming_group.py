"""One consumer group as its members describe it."""

from __future__ import annotations

import logging

import pytest

from orbitmq.broker.groups.consuming_group import ConnectedClient, ConsumingGroup
from orbitmq.errors import SubscriptionConflictError
from orbitmq.model.subscriptions import BROADCASTING, CLUSTERING, Subscription
from tests.unit.broker.groups.clients import consumer, new_connection, subscription


def new_group(*, reject_differing: bool = False) -> ConsumingGroup:
    return ConsumingGroup("g", reject_differing=reject_differing)


def new_client(client_id: str) -> ConnectedClient:
    return ConnectedClient(new_connection(), client_id, "JAVA", 479)


def send_heartbeat(
    group: ConsumingGroup, client: ConnectedClient, *subscriptions: Subscription
) -> bool:
    return group.heartbeat(client, consumer("g", *subscriptions), with_subscriptions=True)


def expressions(group: ConsumingGroup) -> dict[str, str]:
    return {topic: each.expression for topic, each in group.subscriptions.items()}


# --- as RocketMQ ------------------------------------------------------------------------------


def test_others_are_notified_of_new_members_and_topics_only() -> None:
    group = new_group()
    client = new_client("a")

    assert send_heartbeat(group, client, subscription("T", "a", 1))
    assert not send_heartbeat(group, client, subscription("T", "a", 1))
    assert not send_heartbeat(group, client, subscription("T", "b", 2))
    assert send_heartbeat(group, client, subscription("T", "b", 2), subscription("U", "c", 3))
    assert send_heartbeat(group, client, subscription("T", "b", 2))
    assert send_heartbeat(group, new_client("b"), subscription("T", "b", 2))
    assert expressions(group) == {"T": "b"}


def test_thousands_of_topics_make_a_short_log_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    topics = [subscription(f"{n}" + "x" * 1000, "*", 1) for n in range(1000)]

    send_heartbeat(new_group(), new_client("a"), *topics)

    assert "and 980 more" in caplog.text
    assert len(caplog.text) < 5000


def test_the_last_heartbeat_counts_but_an_older_version_of_a_topic_does_not() -> None:
    group = new_group()
    send_heartbeat(group, new_client("a"), subscription("T", "new", 5), subscription("U"))
    send_heartbeat(group, new_client("b"), subscription("T", "old", 4), subscription("V"))
    send_heartbeat(group, new_client("c"), subscription("T", "same version", 5), subscription("V"))

    assert expressions(group) == {"T": "new", "V": "*"}


def test_the_last_heartbeat_sets_how_the_group_consumes() -> None:
    group = new_group()
    assert group.message_model == CLUSTERING

    group.heartbeat(new_client("a"), consumer("g", model="BROADCASTING"), with_subscriptions=True)

    assert group.message_model == BROADCASTING
    assert group.is_broadcasting


def test_a_heartbeat_without_subscriptions_does_not_change_them() -> None:
    group = new_group()
    client = new_client("a")
    send_heartbeat(group, client, subscription("T", "a"))

    assert not group.heartbeat(client, consumer("g"), with_subscriptions=False)

    assert expressions(group) == {"T": "a"}


def test_a_client_that_reconnects_is_listed_once() -> None:
    group = new_group()
    for client_id in ("a", "b", "a"):
        send_heartbeat(group, new_client(client_id), subscription("T"))

    assert group.client_ids() == ["a", "b"]
    assert len(group.members) == 3


def test_only_members_can_leave() -> None:
    group = new_group()
    client = new_client("a")
    send_heartbeat(group, client, subscription("T"))

    assert group.leave(client.connection)
    assert not group.leave(client.connection)


# --- members that differ ----------------------------------------------------------------------


def test_a_differing_newcomer_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    group = new_group()
    old, new = new_client("old"), new_client("new")
    send_heartbeat(group, old, subscription("T", "a || b", 1))
    with caplog.at_level(logging.WARNING):
        send_heartbeat(group, new, subscription("T", "a", 2))
        send_heartbeat(group, new, subscription("T", "a", 2))
        send_heartbeat(group, old, subscription("T", "b||a", 1))

    assert [member.differs for member in group.members.values()] == [False, True]
    assert group.client_ids() == ["old", "new"]
    assert caplog.text.count("subscriptions differ group=g client=new") == 1
    assert "has=T by TAG a group_has=T by TAG a || b" in caplog.text
    group.check_not_excluded(new.connection)


def test_members_that_agree_again_no_longer_differ() -> None:
    group = new_group()
    old, new = new_client("old"), new_client("new")
    send_heartbeat(group, old, subscription("T", "a", 1))
    send_heartbeat(group, new, subscription("T", "b", 2))

    send_heartbeat(group, old, subscription("T", "b", 3))

    assert not any(member.differs for member in group.members.values())


def test_a_rejected_member_is_excluded_and_changes_nothing() -> None:
    group = new_group(reject_differing=True)
    old, new = new_client("old"), new_client("new")
    send_heartbeat(group, old, subscription("T", "a", 1))

    send_heartbeat(group, new, subscription("T", "b", 2), subscription("U", "*", 2))

    assert group.client_ids() == ["old"]
    assert expressions(group) == {"T": "a"}
    group.check_not_excluded(old.connection)
    with pytest.raises(
        SubscriptionConflictError,
        match=r"'new' subscribes to \[T by TAG b; U by TAG \*\].*'g' subscribes to \[T by TAG a\]",
    ):
        group.check_not_excluded(new.connection)


def test_the_older_subscription_wins_whoever_joins_first() -> None:
    group = new_group(reject_differing=True)
    old, new = new_client("old"), new_client("new")
    send_heartbeat(group, new, subscription("T", "b", 2))

    assert send_heartbeat(group, old, subscription("T", "a", 1))

    assert group.client_ids() == ["old"]
    assert expressions(group) == {"T": "a"}


def test_new_members_are_admitted_when_the_last_old_one_has_left() -> None:
    group = new_group(reject_differing=True)
    old, new, newer = new_client("old"), new_client("new"), new_client("newer")
    send_heartbeat(group, old, subscription("T", "a", 1))
    send_heartbeat(group, new, subscription("U", "b", 2))
    send_heartbeat(group, newer, subscription("U", "b", 3))

    group.leave(old.connection)

    assert group.client_ids() == ["new", "newer"]
    assert expressions(group) == {"U": "b"}
    group.check_not_excluded(new.connection)


def test_a_member_that_no_longer_differs_is_admitted() -> None:
    group = new_group(reject_differing=True)
    old, new = new_client("old"), new_client("new")
    send_heartbeat(group, old, subscription("T", "a", 1))
    send_heartbeat(group, new, subscription("T", "b", 2))

    assert send_heartbeat(group, new, subscription("T", "a", 3))

    assert group.client_ids() == ["old", "new"]


def test_a_member_with_unknown_subscriptions_is_not_compared() -> None:
    group = new_group(reject_differing=True)
    send_heartbeat(group, new_client("old"), subscription("T", "a", 1))

    group.heartbeat(new_client("new"), consumer("g"), with_subscriptions=False)

    assert group.client_ids() == ["old", "new"]
