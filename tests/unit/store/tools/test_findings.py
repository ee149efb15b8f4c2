from __future__ import annotations

from orbitmq.store.tools.findings import Finding, FindingKind, Findings


def test_the_first_problems_are_kept_and_all_are_counted() -> None:
    findings = Findings()

    for number in range(1500):
        findings.add(Finding(kind=FindingKind.BAD_RECORD, text=str(number), count=2))
        findings.note(str(number))

    assert len(findings.problems) == 1000
    assert findings.counts[FindingKind.BAD_RECORD] == 3000
    assert len(findings.notes) == 1000


def test_advice_depends_on_what_is_damaged() -> None:
    def advice(*kinds: FindingKind) -> str:
        findings = Findings()
        for kind in kinds:
            findings.add(Finding(kind=kind, text=""))
        return "\n".join(findings.advice("/store"))

    assert advice() == ""
    assert "rebuild /store" in advice(FindingKind.MISSING_ENTRY)
    assert "replica" in advice(FindingKind.LOST_RECORDS)
    # Queues made from a log with holes would have other numbers.
    assert "rebuild /store" not in advice(FindingKind.LOST_RECORDS, FindingKind.MISSING_ENTRY)
    assert "move away" in advice(FindingKind.STRANGE_FILE)
