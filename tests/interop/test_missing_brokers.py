"""A broker that was killed: what the source of Spark knows by official name servers and by ours."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orbitmq.errors import BrokersMissingError
from orbitmq.spark.options.read_options import ReadOptions
from orbitmq.spark.reading.queue_view import QueueView
from orbitmq.spark.sessions import reader_pool
from tests.interop import wire
from tests.interop.ours import OrbitBroker
from tests.interop.peers import NameServer
from tests.waiting import wait_until

pytestmark = pytest.mark.interop

NOTICED_S = 60


@pytest.fixture
def pair(
    name_servers: dict[str, NameServer], new_folder: Callable[[str], Path]
) -> Iterator[list[OrbitBroker]]:
    """Two brokers that registered with both name servers."""
    addresses = [server.address for server in name_servers.values()]
    made = [OrbitBroker(name, new_folder(name), addresses, {}) for name in ("half-a", "half-b")]
    for broker in made:
        broker.process.start()
    for broker in made:
        broker.wait_ready()
    yield made
    for broker in made:
        broker.process.kill()
    reader_pool.stop_all()


def view(namesrv: str, **given: str) -> QueueView:
    quick = {"namesrvAddr": namesrv, "retries": "1", "retryIntervalMs": "1"}
    return QueueView(ReadOptions.from_spark({**quick, **given}, streaming=None))


def test_half_a_topic_is_told_from_a_whole_one_as_far_as_name_servers_know(
    name_servers: dict[str, NameServer], pair: list[OrbitBroker], new_topic: str
) -> None:
    left, lost = pair
    official, ours = (name_servers[kind].address for kind in ("official", "ours"))
    for broker in pair:
        broker.create_topic(new_topic)
    assign = json.dumps({new_topic: {broker.name: [0] for broker in pair}})
    with view(official, subscribe=new_topic) as running:
        before = running.queues()
        lost.process.kill()
        for address in (official, ours):
            wait_until(
                lambda address=address: lost.name not in wire.broker_names(address),  # type: ignore[misc]
                timeout_s=NOTICED_S,
                what="the name server notices",
            )

        # An official name server forgets, but a run, a checkpoint and assign know the queues.
        unregistered = f"{lost.name} is not registered"
        with pytest.raises(BrokersMissingError, match=unregistered):
            running.queues()
    with (
        view(official, subscribe=new_topic) as resumed,
        pytest.raises(BrokersMissingError, match=unregistered),
    ):
        resumed.queues(before)
    with (
        view(official, assign=assign) as assigned,
        pytest.raises(BrokersMissingError, match=unregistered),
    ):
        assigned.queues()
    # Nothing else tells that there was another broker.
    with view(official, subscribe=new_topic) as unknowing:
        assert {queue.broker_name for queue in unknowing.queues()} == {left.name}

    # Ours remembers it, also beside an official one.
    for namesrv in (ours, f"{official};{ours}"):
        with (
            view(namesrv, subscribe=new_topic) as told,
            pytest.raises(BrokersMissingError, match=f"{lost.name} is missing since"),
        ):
            told.queues()
