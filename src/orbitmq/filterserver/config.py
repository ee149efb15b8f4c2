"""Options of the filter server."""

from __future__ import annotations

from dataclasses import dataclass

from orbitmq.settings import option

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterServerConfig:
    """Which broker a filter server works for, and what its filter functions may use."""

    broker: str = option(
        "127.0.0.1:10911",
        java="connectWhichBroker",
        doc="Address of the broker whose messages it filters.",
    )
    advertised_address: str = option(
        "",
        java="filterServerIP",
        default_shown="an address of this machine",
        doc="Host that consumers connect to.",
    )
    workers_per_filter: int = option(
        2,
        low=1,
        high=64,
        java="workersPerFilter",
        doc="Processes that run each filter function, at most; they are started when it is used.",
    )
    time_limit_ms: int = option(
        3000,
        low=100,
        high=20_000,
        java="filterTimeLimitMillis",
        doc="A function that takes longer over the messages of a pull is killed, and the pull "
        "fails. After half of this no further message is begun: it is left to the next pull.",
    )
    waiting_bytes_max: int = option(
        16 * _MIB,
        low=_MIB,
        high=16 * 1024 * _MIB,
        java="filterWaitingBytesMax",
        doc="Messages that wait for one filter function; further pulls of it are refused as busy.",
    )
    worker_memory_bytes_max: int = option(
        1024 * _MIB,
        low=0,
        high=1024 * 1024 * _MIB,
        java="filterMemoryBytesMax",
        doc="Memory that a process of a filter function may allocate; 0 sets no limit.",
    )
    worker_idle_seconds_max: int = option(
        300,
        low=1,
        high=86_400,
        java="filterIdleSeconds",
        doc="A process of a filter function that is not used for this long is stopped.",
    )
