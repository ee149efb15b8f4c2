"""Examines one item; runs in Spark's tasks, and needs none of Spark."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from orbitmq.errors import OrbitError
from orbitmq.pipelines.auditing.replica_comparison import ReplicaComparison
from orbitmq.pipelines.auditing.work import IndexFile, Item, QueueRange, ReplicaRange, StoreRange
from orbitmq.store.readonly.readonly_store import ReadOnlyStore
from orbitmq.store.tools.findings import Finding, FindingKind, Findings
from orbitmq.store.tools.index_agreement import check_index_file
from orbitmq.store.tools.queue_order import QueueOrder
from orbitmq.store.tools.range_verification import verify_range

# Findings of each kind that an item returns in full; more are only counted.
KEPT_PER_ITEM: Final = 20
# A live broker may delete files of a queue while they are read.
_LOOKS: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemOptions:
    """What tasks need to know of a broker's configuration."""

    delay_levels: str | None = None
    index_slots: int | None = None


@dataclass(slots=True, kw_only=True)
class Amounts:
    """How much was examined."""

    records: int = 0
    record_bytes: int = 0
    entries: int = 0
    keys: int = 0
    compared_bytes: int = 0
    stand_ins: int = 0

    def add(self, other: Amounts) -> None:
        """Add what else was examined."""
        for one in fields(Amounts):
            setattr(self, one.name, getattr(self, one.name) + getattr(other, one.name))


@dataclass(slots=True, kw_only=True)
class Outcome(Amounts):
    """What examining one item found."""

    # The directory that the findings are about.
    root: str
    findings: list[Finding] = field(default_factory=list)
    counts: dict[FindingKind, int] = field(default_factory=dict)
    # Whether the findings only matter where no others are about the same entries.
    is_about_order: bool = False
    error: str = ""

    def take(self, findings: Findings) -> None:
        """Take findings, the first of each kind in full."""
        self.counts = dict(findings.counts)
        self.findings = _first_of_each_kind(findings.problems)

    def encode(self) -> str:
        """As JSON, for the way back to the driver."""
        content = asdict(self)
        content["findings"] = [one | {"kind": one["kind"].value} for one in content["findings"]]
        content["counts"] = {kind.value: count for kind, count in self.counts.items()}
        return json.dumps(content)

    @classmethod
    def decode(cls, text: str) -> Outcome:
        """Read what `encode` made."""
        content: dict[str, Any] = json.loads(text)
        content["findings"] = [
            Finding(**(one | {"kind": FindingKind(one["kind"])})) for one in content["findings"]
        ]
        content["counts"] = {FindingKind(kind): count for kind, count in content["counts"].items()}
        return cls(**content)


def examine(item: Item, options: ItemOptions) -> Outcome:
    """Examine an item; what prevents it is part of the outcome."""
    outcome = Outcome(root=item.replica if isinstance(item, ReplicaRange) else item.root)
    try:
        if isinstance(item, StoreRange):
            _examine_range(item, options, outcome)
        elif isinstance(item, QueueRange):
            outcome.is_about_order = True
            _examine_queue(item, outcome)
        elif isinstance(item, IndexFile):
            _examine_index(item, options, outcome)
        else:
            _compare(item, outcome)
    except (OrbitError, OSError) as error:
        outcome.error = str(error)
    return outcome


def _examine_range(item: StoreRange, options: ItemOptions, outcome: Outcome) -> None:
    found = verify_range(
        item.root,
        item.part,
        log_path=item.log_path,
        delay_levels=options.delay_levels,
        index_slots=options.index_slots,
    )
    outcome.records = found.records
    outcome.record_bytes = found.record_bytes
    outcome.entries = found.entries
    outcome.keys = found.keys
    outcome.stand_ins = found.stand_ins
    outcome.take(found.findings)


def _examine_queue(item: QueueRange, outcome: Outcome) -> None:
    findings = Findings()
    for _ in range(_LOOKS):
        findings = Findings()
        with ReadOnlyStore(item.root, log_path=item.log_path) as store:
            order = QueueOrder(
                store.on_disk(item.topic, item.queue_id),
                findings,
                topic=item.topic,
                queue_id=item.queue_id,
                # Retention of a live broker may have deleted more.
                log_start=max(item.log_start, store.start),
                log_end=item.log_end,
            )
            order.check(item.first, item.end)
            if store.state.is_clean or not findings.counts:
                break
    outcome.take(findings)


def _examine_index(item: IndexFile, options: ItemOptions, outcome: Outcome) -> None:
    findings = Findings()
    check_index_file(Path(item.path), findings, slots=options.index_slots, is_clean=item.is_clean)
    outcome.take(findings)


def _compare(item: ReplicaRange, outcome: Outcome) -> None:
    with (
        ReadOnlyStore(item.root, log_path=item.log_path) as first,
        ReadOnlyStore(item.replica, log_path=item.log_path) as replica,
    ):
        compared = ReplicaComparison(first.log, replica.log).compare(
            item.start, item.end, item.log_end
        )
    findings = Findings()
    for finding in compared.findings:
        findings.add(finding)
    outcome.take(findings)
    outcome.compared_bytes = compared.compared_bytes


def _first_of_each_kind(findings: Iterable[Finding]) -> list[Finding]:
    kept: list[Finding] = []
    counts: dict[FindingKind, int] = {}
    for finding in findings:
        counts[finding.kind] = counts.get(finding.kind, 0) + 1
        if counts[finding.kind] <= KEPT_PER_ITEM:
            kept.append(finding)
    return kept
