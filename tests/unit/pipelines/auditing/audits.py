"""Audits without Spark: the items one after the other."""

from __future__ import annotations

from pathlib import Path

from orbitmq.pipelines.auditing.directories import BrokerDirectories
from orbitmq.pipelines.auditing.results import AuditedStore, join
from orbitmq.pipelines.auditing.tasks import ItemOptions, Outcome, examine
from orbitmq.pipelines.auditing.work import plan
from orbitmq.store.tools.findings import FindingKind

# Several ranges in each of the small files that tests write.
RANGE_BYTES = 20_000


def audited(
    *roots: Path, range_bytes: int = RANGE_BYTES, options: ItemOptions | None = None
) -> list[AuditedStore]:
    """Audit the directories of one broker."""
    work = plan([BrokerDirectories("a", tuple(map(str, roots)))], range_bytes=range_bytes)
    outcomes = [
        Outcome.decode(examine(item, options or ItemOptions()).encode()) for item in work.items
    ]
    return join(work.stores, outcomes)


def audited_store(
    root: Path, *, range_bytes: int = RANGE_BYTES, options: ItemOptions | None = None
) -> AuditedStore:
    """Audit one directory."""
    (store,) = audited(root, range_bytes=range_bytes, options=options)
    assert store.errors == []
    return store


def found_in(store: AuditedStore) -> list[tuple[FindingKind, str, int, int, int]]:
    """What was found: kind, topic, queue, first and last number."""
    return [
        (one.kind, one.topic, one.queue_id, one.first_number, one.last_number)
        for one in store.findings
    ]
