"""Metrics of transactions: what is open, and how transactions ended.

Threads: `Outcomes` belongs to the event loop; figures are copies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

# Topics with a counter of their own; all others share one without a name.
_TOPICS_MAX: Final = 10_000


@dataclass(slots=True, eq=False)
class Outcomes:
    """How transactions ended since the broker's start, and how often producers were asked."""

    # By topic.
    committed: Counter[str] = field(default_factory=Counter)
    rolled_back: Counter[str] = field(default_factory=Counter)
    given_up: int = 0
    checks: int = 0

    def commit(self, topic: str) -> None:
        """Count a commit."""
        _count(self.committed, topic)

    def roll_back(self, topic: str) -> None:
        """Count a rollback."""
        _count(self.rolled_back, topic)


def _count(counts: Counter[str], topic: str) -> None:
    counts[topic if topic in counts or len(counts) < _TOPICS_MAX else ""] += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionFigures:
    """The transactions of a broker at one moment."""

    # Open ones by topic, and how long the oldest is open.
    open: Mapping[str, int] = field(default_factory=dict)
    oldest_ms: int = 0
    committed: Mapping[str, int] = field(default_factory=dict)
    rolled_back: Mapping[str, int] = field(default_factory=dict)
    given_up: int = 0
    checks: int = 0


def transaction_families(
    figures: TransactionFigures, labels: Mapping[str, str]
) -> Iterator[Metric]:
    """Make the metrics of transactions."""
    of_topic = (*labels, "topic")
    halves = GaugeMetricFamily("rocketmq_half_messages", "Open transactions.", labels=of_topic)
    committed = CounterMetricFamily(
        "rocketmq_commit_messages", "Transactions that were committed.", labels=of_topic
    )
    rolled_back = CounterMetricFamily(
        "rocketmq_rollback_messages", "Transactions that were rolled back.", labels=of_topic
    )
    for family, counts in (
        (halves, figures.open),
        (committed, figures.committed),
        (rolled_back, figures.rolled_back),
    ):
        for topic, count in counts.items():
            family.add_metric([*labels.values(), topic], count)
        yield family
    oldest = GaugeMetricFamily(
        "orbitmq_transaction_oldest_ms",
        "Milliseconds since the oldest open transaction was prepared.",
        labels=[*labels],
    )
    oldest.add_metric([*labels.values()], figures.oldest_ms)
    yield oldest
    for name, about, value in (
        ("transaction_checks", "Checks that were sent to producers.", figures.checks),
        ("transactions_given_up", "Transactions that nobody ended in time.", figures.given_up),
    ):
        counter = CounterMetricFamily(f"orbitmq_{name}", about, labels=[*labels])
        counter.add_metric([*labels.values()], value)
        yield counter
