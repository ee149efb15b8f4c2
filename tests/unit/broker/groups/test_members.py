"""The clients of a broker: heartbeats, queries, departures."""

from __future__ import annotations

import pytest

from orbitmq.broker.groups.members import GroupChange, Members, Outcome
from orbitmq.clock import ManualClock
from orbitmq.errors import (
    GroupRefusedError,
    HeartbeatRefusedError,
    SubscriptionConflictError,
    SubscriptionMissingError,
    SubscriptionOutdatedError,
)
from orbitmq.protocol.requests.clients import HeartbeatBody
from orbitmq.transport.connection import Connection
from tests.unit.broker.groups.clients import consumer, heartbeat, new_connection, subscription


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def members(clock: ManualClock) -> Members:
    return Members(clock=clock, groups_max=4, subscriptions_max=3)


def send_heartbeat(members: Members, connection: Connection, body: HeartbeatBody) -> Outcome:
    return members.heartbeat(connection, body, language="JAVA", version=479)


# --- heartbeats -------------------------------------------------------------------------------


def test_a_heartbeat_makes_a_client_known(members: Members) -> None:
    connection = new_connection()

    send_heartbeat(
        members,
        connection,
        heartbeat("id", consumer("g", subscription("T")), produces=("p", "q")),
    )

    client = members.clients[connection]
    assert (client.client_id, client.language, client.version) == ("id", "JAVA", 479)
    assert members.client_ids("g") == ["id"]
    assert members.client_id(connection, "g") == "id"
    assert members.find_consumer("g", "id") is members.clients[connection]
    assert members.groups_of_topic("T") == ["g"]
    assert set(members.producers) == {"p", "q"}
    assert members.producers["p"] == {connection: client}


def test_a_client_is_found_by_its_id_on_the_connection_opened_last(members: Members) -> None:
    first, second = new_connection(), new_connection()
    for connection in (first, second, first):
        send_heartbeat(members, connection, heartbeat("id", produces=("p",)))

    found = members.find_client("id")
    assert found is members.clients[second]
    members.connection_lost(second)
    assert members.find_client("id") is members.clients[first]
    send_heartbeat(members, first, heartbeat("renamed", produces=("p",)))
    assert members.find_client("id") is None
    assert members.find_client("renamed") is members.clients[first]
    members.unregister(first, producer_group="p")
    assert members.find_client("renamed") is None


def test_what_all_clients_report_is_bounded_and_given_back(clock: ManualClock) -> None:
    members = Members(clock=clock, bytes_max=20_000)
    first, second = new_connection(), new_connection()
    large = heartbeat("id", consumer("g", subscription("T", "x" * 2000)), produces=("p",))

    for _ in range(5):
        send_heartbeat(members, first, large)
    with pytest.raises(HeartbeatRefusedError, match="membersBytesMax"):
        send_heartbeat(members, second, large)
    assert second not in members.clients
    for produces in ("q", "r"):
        send_heartbeat(members, first, heartbeat("id", produces=(produces,)))
    with pytest.raises(HeartbeatRefusedError):
        send_heartbeat(members, first, heartbeat("id", consumer("h", subscription("T"))))

    members.unregister(first, consumer_group="g")
    send_heartbeat(members, second, heartbeat("id", consumer("g", subscription("T"))))
    members.connection_lost(first)
    members.connection_lost(second)
    assert members._held_bytes == 0


def test_what_a_group_keeps_of_a_member_that_left_or_changed_is_counted(clock: ManualClock) -> None:
    members = Members(clock=clock, bytes_max=100_000)
    staying, leaving = new_connection(), new_connection()
    small = heartbeat("a", consumer("g", subscription("T", version=1)))
    large = heartbeat("b", consumer("g", subscription("T", "x" * 8000, version=2)))
    send_heartbeat(members, staying, small)
    empty = members._held_bytes
    send_heartbeat(members, leaving, large)

    # The newest expression counts, though nobody has it any more.
    members.connection_lost(leaving)
    assert members.groups["g"].subscriptions["T"].version == 2
    assert members._held_bytes > empty + 30_000
    send_heartbeat(members, leaving, heartbeat("b", consumer("h", subscription("T", "x" * 8000))))
    send_heartbeat(members, leaving, heartbeat("b", consumer("h", subscription("T", version=-1))))
    with pytest.raises(HeartbeatRefusedError, match="membersBytesMax"):
        send_heartbeat(
            members, leaving, heartbeat("b", consumer("i", subscription("T", "x" * 8000)))
        )

    for connection in (staying, leaving):
        members.connection_lost(connection)
    assert members._held_bytes == 0


def test_unknown_clients_and_groups_are_not_found(members: Members) -> None:
    send_heartbeat(members, new_connection(), heartbeat("id", consumer("g", subscription("T"))))

    assert members.client_ids("h") == []
    assert members.client_id(new_connection(), "g") is None
    assert members.client_id(new_connection(), "h") is None
    assert members.find_consumer("g", "other") is None
    assert members.find_consumer("h", "id") is None
    assert members.groups_of_topic("U") == []
    members.check_pull(new_connection(), "h")


def test_all_members_are_notified_of_a_new_one_itself_included(members: Members) -> None:
    first, second = new_connection(), new_connection()

    assert send_heartbeat(members, first, heartbeat("a", consumer("g"))).changes == [
        GroupChange("g", (first,))
    ]
    assert send_heartbeat(members, second, heartbeat("b", consumer("g"))).changes == [
        GroupChange("g", (first, second))
    ]
    assert send_heartbeat(members, second, heartbeat("b", consumer("g"))).changes == []


def test_members_of_a_broadcasting_group_are_not_notified(members: Members) -> None:
    outcome = send_heartbeat(
        members, new_connection(), heartbeat("a", consumer("g", model="BROADCASTING"))
    )

    assert outcome.changes == [GroupChange("g", ())]


def test_a_connection_may_get_another_client_id(members: Members) -> None:
    connection = new_connection()
    send_heartbeat(members, connection, heartbeat("a", consumer("g"), produces=("p",)))

    outcome = send_heartbeat(members, connection, heartbeat("b", consumer("g")))

    assert members.client_ids("g") == ["b"]
    assert outcome.changes == [GroupChange("g", (connection,))]


def test_a_heartbeat_of_a_closed_connection_is_ignored(members: Members) -> None:
    connection = new_connection()
    connection.closed = True

    assert send_heartbeat(members, connection, heartbeat("a", consumer("g"))).changes == []

    assert not members.clients
    assert not members.groups


def test_a_heartbeat_without_groups_is_dropped(members: Members) -> None:
    send_heartbeat(members, new_connection(), heartbeat("a"))

    assert not members.clients


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (heartbeat(" "), "' ' is not a valid client id"),
        (heartbeat("x" * 1001), "is not a valid client id"),
        (heartbeat("a", produces=("",)), "'' is not a valid group name"),
        (heartbeat("a", consumer("g" * 256)), "is not a valid group name"),
        (
            heartbeat("a", consumer("g"), consumer("h"), produces=("p", "q", "r")),
            r"'a' is in 5 groups \(a client may be in at most 4\)",
        ),
        (
            heartbeat("a", consumer("g", *(subscription(topic) for topic in "TUVW"))),
            r"'g' subscribes to 4 topics \(at most 3",
        ),
    ],
)
def test_a_heartbeat_above_a_limit_is_refused(
    members: Members, body: HeartbeatBody, told: str
) -> None:
    with pytest.raises(HeartbeatRefusedError, match=told):
        send_heartbeat(members, new_connection(), body)

    assert not members.clients


def test_a_client_may_reach_its_limits(members: Members) -> None:
    topics = [subscription(topic) for topic in "TUV"]

    send_heartbeat(
        members, new_connection(), heartbeat("a", consumer("g", *topics), produces=("p", "q"))
    )
    send_heartbeat(
        members, new_connection(), heartbeat("b", consumer("g"), produces=("p", "q", "r"))
    )

    assert len(members.clients) == 2


def test_groups_of_earlier_heartbeats_count_too(members: Members) -> None:
    connection = new_connection()
    send_heartbeat(members, connection, heartbeat("a", produces=("p", "q", "r")))

    with pytest.raises(HeartbeatRefusedError):
        send_heartbeat(members, connection, heartbeat("a", consumer("g"), consumer("h")))


# --- heartbeats that leave out what is known --------------------------------------------------


def test_a_client_without_fingerprints_always_sends_everything(members: Members) -> None:
    assert send_heartbeat(
        members, new_connection(), heartbeat("a", consumer("g"))
    ).subscriptions_changed


def test_a_client_may_omit_unchanged_subscriptions(members: Members) -> None:
    connection = new_connection()
    full = heartbeat("a", consumer("g", subscription("T", "x")), fingerprint=7)
    short = heartbeat("a", consumer("g"), fingerprint=7, without_subscriptions=True)

    assert not send_heartbeat(members, connection, full).subscriptions_changed
    assert not send_heartbeat(members, connection, short).subscriptions_changed
    assert members.groups["g"].subscriptions["T"].expression == "x"


def test_a_client_sends_everything_again_when_another_member_differs(
    members: Members,
) -> None:
    connection = new_connection()
    short = heartbeat("a", consumer("g"), fingerprint=7, without_subscriptions=True)
    send_heartbeat(
        members, connection, heartbeat("a", consumer("g", subscription("T")), fingerprint=7)
    )
    send_heartbeat(members, new_connection(), heartbeat("b", consumer("g"), fingerprint=8))

    assert send_heartbeat(members, connection, short).subscriptions_changed
    assert not send_heartbeat(members, connection, short).subscriptions_changed


def test_a_client_with_unknown_subscriptions_is_asked_for_them(members: Members) -> None:
    short = heartbeat("a", consumer("g"), fingerprint=7, without_subscriptions=True)

    assert send_heartbeat(members, new_connection(), short).subscriptions_changed


# --- pulling ----------------------------------------------------------------------------------


def test_a_pull_gets_the_subscription_of_its_group(members: Members) -> None:
    connection = new_connection()
    send_heartbeat(members, connection, heartbeat("a", consumer("g", subscription("T", "x", 5))))

    found = members.subscription_for_pull(connection, "g", "T", version=5)

    assert found == subscription("T", "x", 5)
    # Admin tools and fast lanes pull on connections without heartbeats.
    assert members.subscription_for_pull(new_connection(), "g", "T", version=4) == found


def test_a_pull_without_its_subscription_is_refused_with_the_reason(members: Members) -> None:
    connection = new_connection()
    model = "BROADCASTING"
    send_heartbeat(
        members, connection, heartbeat("a", consumer("g", subscription("T"), model=model))
    )

    with pytest.raises(SubscriptionMissingError, match="no consumer of group 'h'"):
        members.subscription_for_pull(connection, "h", "T", version=1)
    with pytest.raises(SubscriptionMissingError, match="'g' does not subscribe to topic 'U'"):
        members.subscription_for_pull(connection, "g", "U", version=1)
    with pytest.raises(SubscriptionOutdatedError, match="has version 1, the pull needs 2"):
        members.subscription_for_pull(connection, "g", "T", version=2)
    with pytest.raises(GroupRefusedError, match="may not consume by broadcast"):
        members.subscription_for_pull(connection, "g", "T", version=1, allows_broadcast=False)


# --- members that differ ----------------------------------------------------------------------


def test_members_that_differ_are_counted(members: Members) -> None:
    send_heartbeat(
        members, new_connection(), heartbeat("a", consumer("g", subscription("T", "x", 1)))
    )
    outcome = send_heartbeat(
        members, new_connection(), heartbeat("b", consumer("g", subscription("T", "y", 2)))
    )

    assert members.differing_count == 1
    assert outcome.refusal is None


def test_a_rejected_member_is_refused_while_others_continue(clock: ManualClock) -> None:
    members = Members(clock=clock, reject_differing=True)
    old, new = new_connection(), new_connection()
    send_heartbeat(members, old, heartbeat("old", consumer("g", subscription("T", "x", 1))))

    outcome = send_heartbeat(
        members,
        new,
        heartbeat(
            "new", consumer("g", subscription("T", "y", 2)), consumer("h", subscription("U"))
        ),
    )

    assert isinstance(outcome.refusal, SubscriptionConflictError)
    assert members.client_ids("g") == ["old"]
    assert members.client_ids("h") == ["new"]
    assert members.subscription_for_pull(old, "g", "T", version=1).expression == "x"
    with pytest.raises(SubscriptionConflictError):
        members.subscription_for_pull(new, "g", "T", version=1)
    with pytest.raises(SubscriptionConflictError):
        members.check_pull(new, "g")
    # It gives up its queues, if it had any, because it is notified as well.
    assert outcome.changes == [GroupChange("g", (old, new)), GroupChange("h", (new,))]


# --- leaving ----------------------------------------------------------------------------------


def test_a_lost_connection_leaves_everything(members: Members) -> None:
    first, second = new_connection(), new_connection()
    send_heartbeat(members, first, heartbeat("a", consumer("g"), consumer("h"), produces=("p",)))
    send_heartbeat(members, second, heartbeat("b", consumer("g"), produces=("p",)))

    departure = members.connection_lost(first)

    assert departure.changes == [GroupChange("g", (second,))]
    assert departure.left == [("g", "a"), ("h", "a")]
    assert departure.silent == []
    assert set(members.groups) == {"g"}
    assert set(members.clients) == set(members.producers["p"]) == {second}
    assert members.connection_lost(first).left == []


def test_a_client_leaves_the_groups_it_names(members: Members) -> None:
    connection = new_connection()
    send_heartbeat(members, connection, heartbeat("a", consumer("g"), produces=("p", "q")))

    assert members.unregister(connection, producer_group="p").left == []
    assert set(members.producers) == {"q"}
    departure = members.unregister(connection, producer_group="q", consumer_group="g")

    assert departure.left == [("g", "a")]
    assert departure.changes == []
    assert not members.clients
    assert not members.groups
    assert not members.producers


def test_leaving_another_group_changes_nothing(members: Members) -> None:
    connection = new_connection()
    send_heartbeat(members, connection, heartbeat("a", consumer("g")))

    departure = members.unregister(connection, producer_group="p", consumer_group="h")
    other = members.unregister(new_connection(), consumer_group="g")

    assert departure.left == other.left == []
    assert members.client_ids("g") == ["a"]


async def test_a_silent_client_is_removed(members: Members, clock: ManualClock) -> None:
    silent, lively = new_connection(), new_connection()
    send_heartbeat(members, silent, heartbeat("a", consumer("g"), produces=("p",)))
    send_heartbeat(members, lively, heartbeat("b", consumer("g")))
    await clock.advance(120_000)
    send_heartbeat(members, lively, heartbeat("b", consumer("g")))
    assert members.expire().silent == []

    await clock.advance(1)
    departure = members.expire()

    assert departure.silent == [silent]
    assert departure.left == [("g", "a")]
    assert departure.changes == [GroupChange("g", (lively,))]
    assert set(members.clients) == {lively}


async def test_a_group_that_is_no_longer_named_is_left_without_closing(
    members: Members, clock: ManualClock
) -> None:
    connection = new_connection()
    send_heartbeat(members, connection, heartbeat("a", consumer("g"), consumer("h")))
    await clock.advance(120_001)
    send_heartbeat(members, connection, heartbeat("a", consumer("h")))

    departure = members.expire()

    assert departure.left == [("g", "a")]
    assert departure.silent == []
    assert set(members.groups) == {"h"}
