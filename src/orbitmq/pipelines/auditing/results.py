"""The result of an audit: what its items found, joined, and what to do about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from orbitmq.pipelines.auditing.message_checks import MessageChecks
from orbitmq.pipelines.auditing.tasks import Amounts, Outcome
from orbitmq.pipelines.auditing.work import StorePlan
from orbitmq.store.files.file_names import offset_of
from orbitmq.store.tools.findings import LOG_KINDS, Finding, FindingKind, Findings

# Findings of each kind that a directory keeps in full; more are only counted.
_KEPT_MAX: Final = 200
_ERRORS_MAX: Final = 20


@dataclass(slots=True, kw_only=True)
class AuditedStore(Amounts):
    """What was found in one directory."""

    plan: StorePlan
    findings: list[Finding] = field(default_factory=list)
    counts: Counter[FindingKind] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    advice: list[str] = field(default_factory=list)

    @property
    def root(self) -> str:
        """The directory."""
        return self.plan.root


@dataclass(slots=True, kw_only=True)
class Audit:
    """The result of an audit."""

    stores: list[AuditedStore]
    messages: MessageChecks = field(default_factory=MessageChecks)

    @property
    def has_defects(self) -> bool:
        """Whether anything is wrong with a directory."""
        return any(store.counts for store in self.stores)

    @property
    def is_complete(self) -> bool:
        """Whether everything could be examined."""
        return not any(store.errors for store in self.stores)


def join(plans: Iterable[StorePlan], outcomes: Iterable[Outcome]) -> list[AuditedStore]:
    """Join what the items of each directory found."""
    stores = {plan.root: AuditedStore(plan=plan) for plan in plans}
    found: dict[str, list[Outcome]] = {root: [] for root in stores}
    for outcome in outcomes:
        found[outcome.root].append(outcome)
    for root, store in stores.items():
        _join_store(store, found[root])
    for store in stores.values():
        store.advice = _advice(store, list(stores.values()))
    return list(stores.values())


def _join_store(store: AuditedStore, outcomes: list[Outcome]) -> None:
    plan = store.plan
    if plan.error:
        store.errors.append(plan.error)
        return
    store.notes = list(plan.findings.notes)
    findings = list(plan.findings.problems)
    store.counts = Counter(plan.findings.counts)
    for outcome in outcomes:
        store.add(outcome)
        if outcome.error and len(store.errors) < _ERRORS_MAX:
            store.errors.append(outcome.error)
        store.counts.update(outcome.counts)
    certain = [
        one
        for outcome in outcomes
        for one in outcome.findings
        if not (outcome.is_about_order or one.kind is FindingKind.STRAY_ENTRY)
    ]
    covered = _Covered(certain)
    for outcome in outcomes:
        for one in outcome.findings:
            if outcome.is_about_order:
                is_known = covered.has_some(one)
            else:
                # The range that a damaged entry leads into found it, too.
                is_known = one.kind is FindingKind.STRAY_ENTRY and covered.has_all(one)
            if is_known:
                store.counts[one.kind] -= one.count
            else:
                findings.append(one)
    store.counts = +store.counts
    store.findings = _bounded(_joined(findings))
    if store.stand_ins:
        store.notes.append(f"{store.stand_ins} records replace bytes whose loss was accepted")


class _Covered:
    """Entries of queues that findings are about."""

    def __init__(self, findings: Iterable[Finding]) -> None:
        self._ranges: dict[tuple[str, int], list[tuple[int, int]]] = {}
        for one in findings:
            if one.topic:
                ranges = self._ranges.setdefault((one.topic, one.queue_id), [])
                ranges.append((one.first_number, one.last_number))

    def has_some(self, finding: Finding) -> bool:
        """Whether one of a finding's entries is among them."""
        return any(
            first <= finding.last_number and last >= finding.first_number
            for first, last in self._ranges.get((finding.topic, finding.queue_id), ())
        )

    def has_all(self, finding: Finding) -> bool:
        """Whether all of a finding's entries are among them."""
        return any(
            first <= finding.first_number and last >= finding.last_number
            for first, last in self._ranges.get((finding.topic, finding.queue_id), ())
        )


def _joined(findings: list[Finding]) -> list[Finding]:
    """Join findings that go on in the next range of the log, and those about one replica."""
    joined: list[Finding] = []
    for finding in sorted(findings, key=_order):
        last = joined[-1] if joined else None
        if last is not None and _goes_on(last, finding):
            joined[-1] = replace(
                last, last_number=finding.last_number, count=last.count + finding.count
            )
        elif last is not None and last.kind is finding.kind is FindingKind.REPLICA_DIFFERS:
            joined[-1] = replace(last, count=last.count + finding.count)
        else:
            joined.append(finding)
    return joined


def _order(finding: Finding) -> tuple[bool, str, str, int, int, int]:
    is_replica = finding.kind is FindingKind.REPLICA_DIFFERS
    if is_replica:
        return True, "", "", 0, 0, finding.offset
    return (
        False,
        finding.kind.value,
        finding.topic,
        finding.queue_id,
        finding.first_number,
        finding.offset,
    )


def _goes_on(last: Finding, finding: Finding) -> bool:
    return (
        finding.topic != ""
        and finding.kind is not FindingKind.BAD_RECORD
        and (last.kind, last.text, last.topic, last.queue_id)
        == (finding.kind, finding.text, finding.topic, finding.queue_id)
        and last.last_number + 1 == finding.first_number
    )


def _bounded(findings: list[Finding]) -> list[Finding]:
    kept: list[Finding] = []
    counts: Counter[FindingKind] = Counter()
    for finding in findings:
        counts[finding.kind] += 1
        if counts[finding.kind] <= _KEPT_MAX:
            kept.append(finding)
    return kept


# --- what to do -----------------------------------------------------------------------------------


def _advice(store: AuditedStore, stores: list[AuditedStore]) -> list[str]:
    """What to do about the findings of a directory, with the commands."""
    lines: list[str] = []
    copies = [
        other
        for other in stores
        if other.plan.broker == store.plan.broker and other is not store and not other.errors
    ]
    if store.counts.keys() & LOG_KINDS:
        lines += _from_copies(store, copies)
    if FindingKind.REPLICA_DIFFERS in store.counts and not store.counts.keys() & LOG_KINDS:
        first = next((other for other in copies if other.root == store.plan.replica_of), None)
        if first is not None and not first.counts.keys() & LOG_KINDS:
            lines.append(
                f"{store.root} and {first.root} have different messages: stop the broker that "
                "is not the master, move its directory away, and start it with an empty one; it "
                "copies the log of its master. Its messages stay readable in the old directory"
            )
    if lines:
        return lines
    summary = Findings()
    for finding in store.findings:
        summary.add(finding)
    return summary.advice(store.root, is_clean=store.plan.is_clean)


def _from_copies(store: AuditedStore, copies: list[AuditedStore]) -> list[str]:
    """Commands that copy damaged or missing files of the log, if there are whole ones."""
    lines: list[str] = []
    damaged = [one for one in store.findings if _is_in_log(one)]
    for path in dict.fromkeys(Path(one.file) for one in damaged):
        start = offset_of(path)
        end = (start or 0) + store.plan.log_file_bytes
        for copy in copies:
            if start is None or not _has_whole(copy, store, path.name, start, end):
                continue
            lines.append(
                f"stop the broker, keep the old file elsewhere, then: "
                f"cp {copy.root}/commitlog/{path.name} {path}"
            )
            break
        else:
            return []
    if lines:
        lines.append(f"then: orbitmq store verify {store.root}")
    return lines


def _has_whole(copy: AuditedStore, store: AuditedStore, name: str, start: int, end: int) -> bool:
    """Whether a copy has all of a file that a directory should have."""
    plan = copy.plan
    in_log = [one for one in copy.findings if one.kind in LOG_KINDS]
    # What is only counted may be anywhere.
    is_damaged = sum(one.count for one in in_log) < sum(copy.counts[kind] for kind in LOG_KINDS)
    is_damaged |= any(Path(one.file).name == name for one in in_log if _is_in_log(one))
    is_last = end >= store.plan.end
    return (
        not is_damaged
        and plan.log_file_bytes == store.plan.log_file_bytes
        and plan.start <= start
        and (plan.end == store.plan.end if is_last else plan.end >= end)
        and (Path(copy.root) / "commitlog" / name).is_file()
    )


def _is_in_log(finding: Finding) -> bool:
    """Whether a finding names a file of the log."""
    is_missing = finding.kind is FindingKind.MISSING_LOG_FILE
    return is_missing or (finding.kind in LOG_KINDS and finding.position >= 0)
