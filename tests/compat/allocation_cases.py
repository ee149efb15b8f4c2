"""Groups made by chance, and what our allocations make of them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from orbitmq.client.core.consuming.allocation import (
    Allocation,
    averagely,
    averagely_by_circle,
    by_machine_room,
    consistent_hash,
    machine_room_nearby,
    sorted_client_ids,
    sorted_queues,
)
from orbitmq.model.queues import MessageQueue

STRATEGIES = (
    "averagely",
    "averagely_by_circle",
    "consistent_hash",
    "by_machine_room",
    "machine_room_nearby",
)
ROOMS = ("east", "west", "north", "\N{GRINNING FACE}", "\uff21")


def cases(seed: int, count: int) -> Iterator[dict[str, Any]]:
    """Groups as JSON: a strategy, clients, queues of one topic, in any order."""
    chance = random.Random(seed)
    for number in range(count):
        clients = {
            f"{chance.choice(ROOMS)}@10.0.{chance.randrange(4)}.{chance.randrange(30)}@"
            f"{chance.randrange(10**5)}#{chance.randrange(10**15)}"
            for _ in range(chance.choice((1, 2, 3, 5, 9)))
        }
        marks = (f"{room}@b{{}}" for room in ROOMS)
        brokers = {
            chance.choice([*marks, "b{}", "east@", "a@b@c{}"]).format(chance.randrange(20))
            for _ in range(chance.choice((1, 2, 4)))
        }
        topic = chance.choice(("orders", "%RETRY%shippers", "标签"))
        queues = [
            [topic, broker, queue_id]
            for broker in brokers
            for queue_id in range(chance.choice((1, 4, 8, 11)))
        ]
        chance.shuffle(queues)
        yield {
            "strategy": STRATEGIES[number % len(STRATEGIES)],
            "virtual_nodes": chance.choice((1, 10, 10, 33)),
            "rooms": chance.sample(ROOMS, 2),
            "clients": chance.sample(sorted(clients), len(clients)),
            "queues": queues,
        }


def chosen(case: dict[str, Any]) -> dict[str, list[list[Any]]]:
    """What each client of a case takes, in the form of the case."""
    queues = sorted_queues(
        MessageQueue(topic=topic, broker_name=broker, queue_id=number)
        for topic, broker, number in case["queues"]
    )
    clients = sorted_client_ids(case["clients"])
    allocation = _allocation(case)
    return {
        client: [
            [one.topic, one.broker_name, one.queue_id]
            for one in allocation("group", client, queues, clients)
        ]
        for client in clients
    }


def _allocation(case: dict[str, Any]) -> Allocation:
    return {
        "averagely": averagely,
        "averagely_by_circle": averagely_by_circle,
        "consistent_hash": consistent_hash(case["virtual_nodes"]),
        "by_machine_room": by_machine_room(case["rooms"]),
        "machine_room_nearby": machine_room_nearby(
            averagely,
            room_of_queue=lambda queue: queue.broker_name.split("@")[0],
            room_of_client=lambda client: client.split("@")[0],
        ),
    }[case["strategy"]]
