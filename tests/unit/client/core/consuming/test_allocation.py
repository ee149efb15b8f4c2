"""Allocations: every queue has one owner, the same as for Java members."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.client.core.consuming.allocation import (
    Allocation,
    allocation_name,
    averagely,
    averagely_by_circle,
    by_config,
    by_machine_room,
    consistent_hash,
    machine_room_nearby,
    sorted_client_ids,
    sorted_queues,
)
from orbitmq.errors import SettingsError
from orbitmq.model.queues import MessageQueue

GROUP = "shippers"


def queue(queue_id: int, broker_name: str = "broker-a", topic: str = "orders") -> MessageQueue:
    return MessageQueue(topic=topic, broker_name=broker_name, queue_id=queue_id)


def queues(count: int, broker_name: str = "broker-a") -> list[MessageQueue]:
    return [queue(number, broker_name) for number in range(count)]


def clients(count: int) -> list[str]:
    return [f"10.0.0.{number}@1" for number in range(count)]


def ids_of(
    allocation: Allocation, client_id: str, all_queues: list[MessageQueue], ids: list[str]
) -> list[int]:
    return [one.queue_id for one in allocation(GROUP, client_id, all_queues, ids)]


SHARING = [averagely, averagely_by_circle, consistent_hash(), by_machine_room({"room"})]


@pytest.mark.parametrize("allocation", SHARING, ids=allocation_name)
@given(queue_count=st.integers(1, 40), client_count=st.integers(1, 12))
def test_each_queue_has_one_owner(
    allocation: Allocation, queue_count: int, client_count: int
) -> None:
    all_queues = queues(queue_count, "room@broker-a")
    ids = clients(client_count)

    owned = [one for client in ids for one in allocation(GROUP, client, all_queues, ids)]

    assert sorted_queues(owned) == all_queues


@pytest.mark.parametrize("allocation", SHARING, ids=allocation_name)
def test_a_client_that_is_no_member_gets_nothing(allocation: Allocation) -> None:
    assert list(allocation(GROUP, "stranger", queues(4, "room@b"), clients(2))) == []


def test_averagely_gives_runs_and_the_remainder_to_the_first_members() -> None:
    owned = [ids_of(averagely, client, queues(8), clients(3)) for client in clients(3)]

    assert owned == [[0, 1, 2], [3, 4, 5], [6, 7]]


def test_averagely_leaves_members_without_when_queues_are_few() -> None:
    owned = [ids_of(averagely, client, queues(2), clients(3)) for client in clients(3)]

    assert owned == [[0], [1], []]


def test_by_circle_deals_out_in_turn() -> None:
    owned = [ids_of(averagely_by_circle, one, queues(8), clients(3)) for one in clients(3)]

    assert owned == [[0, 3, 6], [1, 4, 7], [2, 5]]


def test_by_config_takes_its_queues_whatever_the_members() -> None:
    own = [queue(5), queue(9, topic="returns")]

    assert by_config(own)(GROUP, "stranger", queues(4), clients(2)) == own


def test_by_machine_room_takes_brokers_of_its_rooms_only() -> None:
    allocation = by_machine_room({"east", "west"})
    all_queues = [*queues(3, "east@a"), *queues(5, "north@a"), *queues(2, "plain")]

    owned = [ids_of(allocation, client, all_queues, clients(2)) for client in clients(2)]

    assert owned == [[0, 2], [1]]


def test_nearby_members_share_the_queues_of_their_room() -> None:
    allocation = machine_room_nearby(
        averagely,
        room_of_queue=lambda one: one.broker_name.split("@")[0],
        room_of_client=lambda client: client.split("-")[0],
    )
    all_queues = [*queues(4, "east@a"), *queues(2, "empty@a"), *queues(2, "west@a")]
    ids = ["east-1", "east-2", "west-1"]

    owned = {client: allocation(GROUP, client, all_queues, ids) for client in ids}

    assert owned == {
        "east-1": [*queues(2, "east@a"), queue(0, "empty@a")],
        "east-2": [*queues(4, "east@a")[2:], queue(1, "empty@a")],
        "west-1": queues(2, "west@a"),
    }
    assert allocation(GROUP, "stranger", all_queues, ids) == []


def test_nearby_needs_a_room_for_everyone() -> None:
    allocation = machine_room_nearby(
        averagely, room_of_queue=lambda _: "east", room_of_client=lambda _: ""
    )

    with pytest.raises(SettingsError, match="no machine room is known for 'c'"):
        allocation(GROUP, "c", queues(1), ["c"])


def test_a_ring_moves_only_the_queues_of_the_member_that_left() -> None:
    allocation = consistent_hash()
    ids, all_queues = clients(5), queues(64)
    before = {one: client for client in ids for one in allocation(GROUP, client, all_queues, ids)}

    left = ids[1:]
    after = {one: client for client in left for one in allocation(GROUP, client, all_queues, left)}

    assert {one for one in all_queues if before[one] != after[one]} == {
        one for one, client in before.items() if client == ids[0]
    }


def test_a_ring_without_virtual_nodes_is_refused() -> None:
    with pytest.raises(SettingsError, match="0 virtual nodes"):
        consistent_hash(0)


def test_queues_are_sorted_by_topic_then_broker_then_number() -> None:
    expected = [
        queue(2, "b", "a"),
        queue(10, "b", "a"),
        queue(0, "c", "a"),
        queue(0, "a", "b"),
    ]

    assert sorted_queues(reversed(expected)) == expected


def test_texts_are_compared_by_their_utf_16_units() -> None:
    # Compat: the first of these is two units from 0xD83D on in Java, so it comes before the other.
    expected = ["\N{GRINNING FACE}", "\uff21"]

    assert sorted_client_ids(reversed(expected)) == expected
    assert all(one > other for one, other in pairwise(expected))


def test_an_allocation_has_a_name_for_logs() -> None:
    class Own:
        def __call__(self, *_: object) -> list[MessageQueue]:
            return []

    assert allocation_name(averagely) == "averagely"
    assert allocation_name(consistent_hash()) == "consistent_hash"
    assert allocation_name(Own()) == "Own"
