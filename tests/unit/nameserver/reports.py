"""Reports of brokers, and a registry that takes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orbitmq.model.topics import TopicConfig
from orbitmq.model.versions import DataVersion
from orbitmq.nameserver.broker_registry import (
    BrokerKey,
    BrokerRegistry,
    MasterAddresses,
    Report,
)


class Line:
    """A broker's connection, as far as the registry knows it."""

    def __init__(self) -> None:
        self.aborted = False

    def abort(self) -> None:
        self.aborted = True


LINE = Line()


def topics(*names: str, permission: int = 6, queues: int = 4) -> dict[str, TopicConfig]:
    return {
        name: TopicConfig(name=name, permission=permission, read_queues=queues, write_queues=queues)
        for name in names
    }


def report(
    table: Mapping[str, TopicConfig],
    *,
    name: str = "a",
    broker_id: int = 0,
    address: str = "10.0.0.1:10911",
    cluster: str = "C",
    version: int = 1,
    state: int = 0,
    **rest: Any,
) -> Report:
    return Report(
        key=BrokerKey(cluster, address),
        broker_name=name,
        broker_id=broker_id,
        ha_address=rest.pop("ha_address", f"{address}-ha"),
        data_version=DataVersion(counter=version, state_version=state),
        read_topics=lambda: table,
        connection=rest.pop("connection", LINE),
        **rest,
    )


def register(
    registry: BrokerRegistry, given: Report, *, now_ms: int = 0, **rest: Any
) -> MasterAddresses:
    return registry.register(given, now_ms=now_ms, silence_ms_max=120_000, **rest)
