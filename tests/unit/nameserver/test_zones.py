"""Which brokers a client sees that stays in its zone."""

from __future__ import annotations

from orbitmq.model.routes import BrokerGroup, QueueRoute, TopicRoute
from orbitmq.nameserver.zones import in_zone


def group(name: str, zone: str | None, addresses: dict[int, str]) -> BrokerGroup:
    return BrokerGroup(name=name, cluster="C", zone=zone, addresses=addresses)


def test_brokers_of_other_zones_are_left_out_with_their_queues() -> None:
    route = TopicRoute(
        brokers=[
            group("here", "East", {0: "10.0.0.1:1"}),
            group("there", "west", {0: "10.0.0.2:1"}),
            group("nowhere", None, {0: "10.0.0.3:1"}),
            group("no master", "west", {1: "10.0.0.4:1"}),
        ],
        queues=[
            QueueRoute(broker_name=name, permission=6, read_queues=1, write_queues=1)
            for name in ("here", "there", "nowhere", "no master")
        ],
        filter_servers={"10.0.0.1:1": ["f"], "10.0.0.2:1": ["g"]},
    )

    seen = in_zone(route, "east")

    assert [broker.name for broker in seen.brokers] == ["here", "no master"]
    assert [queue.broker_name for queue in seen.queues] == ["here", "no master"]
    assert seen.filter_servers == {"10.0.0.1:1": ["f"]}
