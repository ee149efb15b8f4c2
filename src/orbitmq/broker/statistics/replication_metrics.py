"""Metrics of replication: roles, a master's slaves, a slave's link to its master."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from orbitmq.model.queues import PhysicalOffset

_Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SlaveFigures:
    """A slave, as its master sees it."""

    # None if it does not say, as slaves of RocketMQ.
    broker_id: int | None
    # Where it takes requests; of slaves of RocketMQ, the address of the connection.
    address: str
    # It has everything below.
    copied: PhysicalOffset
    lag_bytes: int
    is_near: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationFigures:
    """The replication of a broker at one moment."""

    role: str
    broker_id: int
    address: str
    is_slave: bool
    # Whether it is a master that no other has replaced.
    is_master: bool
    epoch: int
    log_start: int
    log_end: int
    visible: int
    slaves: tuple[SlaveFigures, ...] = ()
    # How long ago the message that begins at an offset was stored; reads the log. None if none does.
    lag_ms: Callable[[PhysicalOffset], int | None] = lambda _: None
    # Slaves that a sync master waits for, and how many of them are near.
    awaited: int = 0
    near: int = 0
    # How often messages became visible without enough copies.
    given_up: int = 0
    # Of a slave: the address of its master, and whether its log arrives.
    master: str = ""
    is_linked: bool = False
    # The end of the master's log, and when it said so; None if it was not heard.
    master_end: int | None = None
    master_heard_ms: int | None = None


def replication_families(
    figures: ReplicationFigures, labels: _Labels, *, now_ms: int
) -> Iterator[Metric]:
    """Make the metrics of replication; those of all brokers, and a master's or a slave's."""
    yield _gauge(
        "broker_role",
        "1, with the role and id of this broker as labels.",
        labels,
        [({"role": figures.role, "id": str(figures.broker_id), "address": figures.address}, 1)],
    )
    for name, about, value in (
        ("is_master", "Whether this broker is the master of its group: 1 or 0.", figures.is_master),
        ("epoch", "The epoch of the last promotion that this broker knows.", figures.epoch),
        ("log_start_offset", "Where the log begins.", figures.log_start),
        ("log_end_offset", "Where the log ends.", figures.log_end),
        ("log_visible_offset", "Up to where consumers can see the log.", figures.visible),
    ):
        yield _gauge(name, about, labels, [({}, value)])
    yield from (
        _of_slave(figures, labels, now_ms) if figures.is_slave else _of_master(figures, labels)
    )


def _of_slave(figures: ReplicationFigures, labels: _Labels, now_ms: int) -> Iterator[Metric]:
    master = {"master": figures.master}
    about = "Whether the master's log arrives: 1 or 0."
    yield _gauge("master_linked", about, labels, [(master, figures.is_linked)])
    if figures.master_end is None or figures.master_heard_ms is None:
        return
    about = "Where the log of the master ended when it was heard last."
    yield _gauge("master_log_end_offset", about, labels, [(master, figures.master_end)])
    about = "Seconds since the master was heard last."
    silence_s = max(now_ms - figures.master_heard_ms, 0) / 1000
    yield _gauge("master_silence_seconds", about, labels, [(master, silence_s)])


def _of_master(figures: ReplicationFigures, labels: _Labels) -> Iterator[Metric]:
    slaves = [({"slave": _id(one), "address": one.address}, one) for one in figures.slaves]
    for name, about, value in (
        ("slaves_connected", "Slaves that are connected.", len(slaves)),
        ("slaves_near", "Slaves that are connected and near.", figures.near),
        ("slaves_awaited", "Slaves that a send waits for.", figures.awaited),
    ):
        yield _gauge(name, about, labels, [({}, value)])
    yield _gauge(
        "slave_copied_offset",
        "Up to where a slave has the log.",
        labels,
        [(slave, one.copied) for slave, one in slaves],
    )
    yield _gauge(
        "slave_lag_bytes",
        "Bytes that a slave lags behind.",
        labels,
        [(slave, one.lag_bytes) for slave, one in slaves],
    )
    lags = [(slave, figures.lag_ms(one.copied)) for slave, one in slaves]
    yield _gauge(
        "slave_lag_seconds",
        "Seconds since the first message was stored that a slave lacks.",
        labels,
        [(slave, lag_ms / 1000) for slave, lag_ms in lags if lag_ms is not None],
    )
    yield _gauge(
        "slave_near",
        "Whether a slave is near the end of the log: 1 or 0.",
        labels,
        [(slave, one.is_near) for slave, one in slaves],
    )
    given_up = CounterMetricFamily(
        "orbitmq_shown_without_copies",
        "How often messages became visible before enough slaves had them.",
        labels=[*labels],
    )
    given_up.add_metric([*labels.values()], figures.given_up)
    yield given_up


def _id(slave: SlaveFigures) -> str:
    return "" if slave.broker_id is None else str(slave.broker_id)


def _gauge(
    name: str, about: str, labels: _Labels, samples: Iterable[tuple[_Labels, float]]
) -> GaugeMetricFamily:
    samples = list(samples)
    names = [*samples[0][0]] if samples else []
    gauge = GaugeMetricFamily(f"orbitmq_{name}", about, labels=[*labels, *names])
    for more, value in samples:
        gauge.add_metric([*labels.values(), *more.values()], value)
    return gauge
