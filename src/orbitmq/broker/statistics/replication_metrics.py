"""Metrics of replication: a master's slaves, or a slave's link to its master."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationFigures:
    """The replication of a broker at one moment."""

    is_slave: bool = False
    # By which many bytes each slave lags, by its address.
    lags: Mapping[str, int] = field(default_factory=dict)
    # Slaves that a sync master waits for, and how many of them are near.
    awaited: int = 0
    near: int = 0
    # How often messages became visible without enough copies.
    given_up: int = 0
    # Whether the log of the master arrives; at a slave.
    is_linked: bool = False


def replication_families(
    figures: ReplicationFigures, labels: Mapping[str, str]
) -> Iterator[Metric]:
    """Make the metrics of replication; a master's or a slave's."""
    values = [*labels.values()]
    if figures.is_slave:
        linked = GaugeMetricFamily(
            "orbitmq_master_linked", "Whether the master's log arrives: 1 or 0.", labels=[*labels]
        )
        linked.add_metric(values, figures.is_linked)
        yield linked
        return
    for name, about, value in (
        ("slaves_near", "Slaves that are connected and near.", figures.near),
        ("slaves_awaited", "Slaves that a send waits for.", figures.awaited),
    ):
        gauge = GaugeMetricFamily(f"orbitmq_{name}", about, labels=[*labels])
        gauge.add_metric(values, value)
        yield gauge
    lags = GaugeMetricFamily(
        "orbitmq_slave_lag_bytes", "Bytes that a slave lags behind.", labels=[*labels, "slave"]
    )
    for slave, lag in figures.lags.items():
        lags.add_metric([*values, slave], lag)
    yield lags
    given_up = CounterMetricFamily(
        "orbitmq_shown_without_copies",
        "How often messages became visible before enough slaves had them.",
        labels=[*labels],
    )
    given_up.add_metric(values, figures.given_up)
    yield given_up
