"""Options of the name server."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from orbitmq.settings import option


@dataclass(frozen=True, slots=True, kw_only=True)
class NameServerConfig:
    """What the name server stores, answers and removes."""

    home: str = option(
        "",
        java="rocketmqHome",
        environment=("ROCKETMQ_HOME",),
        doc="Installation folder; accepted for RocketMQ's scripts, nothing is read from it.",
    )
    key_values_path: Path = option(
        Path("~/namesrv/kvConfig.json"),
        java="kvConfigPath",
        doc="File that stores the key-value configuration.",
    )
    epochs_path: Path | None = option(
        None,
        java="epochsPath",
        doc="File that stores the largest epoch of each broker group; by default epochs.json beside "
        "kvConfigPath.",
    )
    config_path: Path = option(
        Path("~/namesrv/namesrv.properties"),
        java="configStorePath",
        doc="File that live updates are written to if the server was started without -c.",
    )
    config_black_list: tuple[str, ...] = option(
        ("configBlackList", "configStorePath", "kvConfigPath"),
        java="configBlackList",
        doc="Options that live updates may not change.",
    )
    scan_interval_ms: int = option(
        10_000,
        low=100,
        high=600_000,
        java="scanNotActiveBrokerInterval",
        doc="Pause between two scans for silent brokers.",
    )
    broker_silence_ms_max: int = option(
        120_000,
        low=1000,
        high=86_400_000,
        java="brokerChannelExpiredTime",
        doc="A broker silent for this long is removed, unless it set a timeout of its own.",
    )
    key_values_print_minutes: int = option(
        10,
        low=1,
        high=100_000,
        java="kvConfigPrintMinutes",
        doc="Pause between two dumps of the key-value configuration to the log.",
    )
    order_topics: bool = option(
        False,
        live=True,
        java="orderMessageEnable",
        doc="Include the order of a topic's queues in its route, if configured.",
    )
    order_topics_to_brokers: bool = option(
        True,
        live=True,
        java="returnOrderTopicConfigToBroker",
        doc="Send the order of topics to brokers that register.",
    )
    acting_master: bool = option(
        False,
        live=True,
        java="supportActingMaster",
        doc="In a group without a master, show the first slave as its read-only master.",
    )
    list_all_topics: bool = option(
        True, live=True, java="enableAllTopicList", doc="Answer requests for all topic names."
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
        doc="Refuse route requests until brokers have had time to register.",
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
        guarded="delete routes",
        java="deleteTopicWithBrokerRegistration",
        doc="Remove topics that are missing from a broker's full report.",
    )
    brokers_max: int = option(
        10_000,
        low=1,
        high=1_000_000,
        java="brokersMax",
        doc="Limit on registered broker addresses; more are refused.",
    )
    topics_max: int = option(
        1_000_000,
        low=1,
        high=100_000_000,
        java="topicsMax",
        doc="Limit on topics; a report that would exceed it is refused.",
    )
    routes_max: int = option(
        5_000_000,
        low=1,
        high=1_000_000_000,
        java="routesMax",
        doc="Limit on routes, one for each topic of each broker name, at about 100 bytes; a report "
        "that would exceed it is refused.",
    )
    epochs_max: int = option(
        10_000,
        low=1,
        high=1_000_000,
        java="epochsMax",
        doc="Limit on broker groups whose epoch is stored; the first epoch of another one is "
        "refused.",
    )
    missing_broker_hours_max: int = option(
        72,
        low=0,
        high=87_600,
        java="missingBrokerHoursMax",
        doc="A broker that left without unregistering is remembered as missing for this long; the "
        "default is as long as brokers keep messages. 0 forgets it at once, as RocketMQ does.",
    )
    remember_unregistered: bool = option(
        False,
        java="rememberUnregisteredBrokers",
        doc="Whether a broker that unregisters, as on a clean stop, counts as missing too, until it "
        "is back, expires or is forgotten by an operator.",
    )
    missing_brokers_max: int = option(
        1_000,
        low=1,
        high=1_000_000,
        java="missingBrokersMax",
        doc="Limit on missing brokers that are remembered; the one missing longest is forgotten.",
    )
    missing_brokers_bytes_max: int = option(
        64 * 1024 * 1024,
        low=0,
        high=16 * 1024 * 1024 * 1024,
        java="missingBrokersBytesMax",
        doc="Limit on the memory for topics of missing brokers. A broker whose topics do not fit "
        "is reported as missing for every topic.",
    )
    key_values_max: int = option(
        100_000,
        low=1,
        high=10_000_000,
        java="kvConfigMax",
        doc="Limit on keys in all namespaces together; more are refused.",
    )
    key_values_bytes_max: int = option(
        64 * 1024 * 1024,
        low=1024,
        high=128 * 1024 * 1024,
        java="kvConfigBytesMax",
        doc="Limit on the bytes of all keys and values; a change that would exceed it is refused.",
    )
