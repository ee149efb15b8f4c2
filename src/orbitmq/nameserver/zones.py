"""Zones: a client that stays in its zone sees only the brokers there."""

from __future__ import annotations

import msgspec

from orbitmq.model.routes import MASTER_ID, TopicRoute


def in_zone(route: TopicRoute, zone: str) -> TopicRoute:
    """Leave out the broker groups that have a master and lie in another zone."""
    kept = [
        group
        for group in route.brokers
        if MASTER_ID not in group.addresses or (group.zone or "").lower() == zone.lower()
    ]
    names = {group.name for group in kept}
    addresses = {address for group in kept for address in group.addresses.values()}
    return msgspec.structs.replace(
        route,
        brokers=kept,
        queues=[queue for queue in route.queues if queue.broker_name in names],
        filter_servers={
            address: servers
            for address, servers in route.filter_servers.items()
            if address in addresses
        },
    )
