"""Allocations and the offset file held against Java's client."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from orbitmq.client.core.consuming.local_offsets import decode_offsets, encode_offsets
from orbitmq.model.queues import MessageQueue
from tests.compat.allocation_cases import cases, chosen
from tests.interop.drivers import JavaDriver
from tests.interop.peers import CLIENTS, Peer

pytestmark = pytest.mark.interop

SEED = 20_240
CASES = 2_000


@pytest.fixture(params=[one for one in CLIENTS if one.kind == "java"], ids=str)
def peer(request: pytest.FixtureRequest) -> Peer:
    """An official Java client."""
    value: Peer = request.param
    return value


@pytest.mark.scenario("peer", "takes over the queues that we release")
def test_groups_made_by_chance_share_queues_as_in_java(
    peer: Peer, drivers: Callable[[str], JavaDriver]
) -> None:
    made = list(cases(SEED, CASES))

    theirs = drivers(peer.line).call("allocate", cases=made)["chosen"]

    differing = [case for case, their in zip(made, theirs, strict=True) if chosen(case) != their]
    assert differing == []


@pytest.mark.scenario("peer", "reads our offset file, and we read its own")
def test_the_offset_file_goes_both_ways(peer: Peer, drivers: Callable[[str], JavaDriver]) -> None:
    offsets = {
        MessageQueue(topic=topic, broker_name=broker, queue_id=number): 2**33 + number
        for topic in ("orders", "标签", 'odd"{}\\')
        for broker in ("broker-a", "b")
        for number in range(5)
    }

    theirs = drivers(peer.line).call("offset_file", text=encode_offsets(offsets).decode())

    assert sorted(theirs["offsets"]) == sorted(
        [queue.topic, queue.broker_name, queue.queue_id, offset]
        for queue, offset in offsets.items()
    )
    assert decode_offsets(theirs["text"].encode()) == offsets
