"""Options of the name server."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from orbitmq.settings import option


@dataclass(frozen=True, slots=True, kw_only=True)
class NameServerConfig:
    """What the name server keeps, answers and forgets."""

    home: str = option(
        "",
        java="rocketmqHome",
        environment=("ROCKETMQ_HOME",),
        doc="Folder of the installation; accepted for RocketMQ's scripts, nothing is read from it.",
    )
    key_values_path: Path = option(
        Path("~/namesrv/kvConfig.json"),
        java="kvConfigPath",
        doc="File that keeps the key-value configuration.",
    )
    config_path: Path = option(
        Path("~/namesrv/namesrv.properties"),
        java="configStorePath",
        doc="File that live updates are written to when the server was started without -c.",
    )
    config_black_list: tuple[str, ...] = option(
        ("configBlackList", "configStorePath", "kvConfigPath"),
        java="configBlackList",
        doc="Options that no live update may name.",
    )
    scan_interval_ms: int = option(
        10_000,
        low=100,
        high=600_000,
        java="scanNotActiveBrokerInterval",
        doc="Pause between two looks for silent brokers.",
    )
    broker_silence_ms_max: int = option(
        120_000,
        low=1000,
        high=86_400_000,
        java="brokerChannelExpiredTime",
        doc="A broker silent for this long is removed, unless it asked for a time of its own.",
    )
    key_values_print_minutes: int = option(
        10,
        low=1,
        high=100_000,
        java="kvConfigPrintMinutes",
        doc="Pause between two listings of the key-value configuration in the log.",
    )
    order_topics: bool = option(
        False,
        live=True,
        java="orderMessageEnable",
        doc="Put the order of a topic's queues into its route, where it is configured.",
    )
    order_topics_to_brokers: bool = option(
        True,
        live=True,
        java="returnOrderTopicConfigToBroker",
        doc="Answer a registering broker with the order of topics.",
    )
    acting_master: bool = option(
        False,
        live=True,
        java="supportActingMaster",
        doc="Show the first slave of a group without master as its master, for reading.",
    )
    list_all_topics: bool = option(
        True, live=True, java="enableAllTopicList", doc="Answer requests for every topic name."
    )
    list_topics: bool = option(
        True,
        live=True,
        java="enableTopicList",
        doc="Answer requests for topics by cluster or unit.",
    )
    wait_before_routes: bool = option(
        False,
        live=True,
        java="needWaitForService",
        doc="Answer no route request until brokers had time to register.",
    )
    wait_seconds: int = option(
        45,
        low=0,
        high=3600,
        live=True,
        java="waitSecondsForService",
        doc="How long needWaitForService waits after the start.",
    )
    delete_missing_topics: bool = option(
        False,
        live=True,
        java="deleteTopicWithBrokerRegistration",
        doc="Forget topics that a broker's full report no longer names.",
    )
    brokers_max: int = option(
        10_000,
        low=1,
        high=1_000_000,
        java="brokersMax",
        doc="Broker addresses kept; a further one is refused.",
    )
    topics_max: int = option(
        1_000_000,
        low=1,
        high=100_000_000,
        java="topicsMax",
        doc="Topics kept; a report that would exceed it is refused.",
    )
    key_values_max: int = option(
        100_000,
        low=1,
        high=10_000_000,
        java="kvConfigMax",
        doc="Keys kept in all namespaces together; a further one is refused.",
    )
    key_values_bytes_max: int = option(
        64 * 1024 * 1024,
        low=1024,
        high=128 * 1024 * 1024,
        java="kvConfigBytesMax",
        doc="Bytes of keys and values kept; what would exceed it is refused.",
    )
