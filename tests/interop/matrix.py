"""Which official peer did what: the table at the end of an interop run, and its minimum.

A test takes part by `@pytest.mark.scenario("broker", "what it does")`: the first argument names the
fixture that plays the peer, whose parameter is a `Peer`. Nothing else has to be registered.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.interop.peers import Peer
from tests.interop.scenario_rows import Row, recorded_scenarios

MINIMUM_FILE = Path(__file__).with_name("scenarios_min.txt")


_SCENARIO = "scenario"


def scenario_of(item: pytest.Item) -> list[tuple[str, Row]]:
    """What a report of a test says of its scenario: nothing, if it carries none."""
    marker = item.get_closest_marker("scenario")
    if marker is None:
        return []
    fixture, name = marker.args
    peer: Peer = item.callspec.params[fixture]  # type: ignore[attr-defined]  # parametrised, so it has one
    return [(_SCENARIO, (peer.kind, peer.version, name))]


@dataclass(slots=True, eq=False)
class Matrix:
    """Results by scenario, filled by the reports while tests run, here or in workers."""

    scenarios: dict[str, Row] = field(default_factory=dict)
    results: dict[str, str] = field(default_factory=dict)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note how one phase of a test ended."""
        said: dict[str, Any] = dict(report.user_properties)
        if _SCENARIO not in said:
            return
        kind, version, name = said[_SCENARIO]
        self.scenarios[report.nodeid] = (kind, version, name)
        if report.failed:
            self.results[report.nodeid] = "failed"
        elif report.when == "call" and report.passed:
            self.results.setdefault(report.nodeid, "passed")

    def pytest_passed_again(self, nodeid: str) -> None:
        """Count a test by its second run."""
        if nodeid in self.scenarios:
            self.results[nodeid] = "passed"

    def rows(self) -> list[str]:
        """The table: client, version, scenario, how many of its variants ended how."""
        counts: dict[Row, Counter[str]] = {}
        for nodeid, row in self.scenarios.items():
            counts.setdefault(row, Counter())[self.results.get(nodeid, "not run")] += 1
        if not counts:
            return []
        return [f"{'client':9} {'version':8} {'scenario':56} result"] + [
            f"{kind:9} {version:8} {name:56} "
            + ", ".join(
                f"{ended} {count[ended]}"
                for ended in ("passed", "failed", "not run")
                if count[ended]
            )
            for (kind, version, name), count in sorted(counts.items())
        ]

    def shortfalls(self, *, without: set[str]) -> list[str]:
        """What is missing to the kept minimum, leaving out kinds that were not to run."""
        passed = Counter(
            kind
            for nodeid, (kind, _, _) in self.scenarios.items()
            if self.results.get(nodeid) == "passed"
        )
        too_few = [
            f"{kind}: {passed[kind]} scenarios passed, {minimum} expected by {MINIMUM_FILE.name}"
            for kind, minimum in minimums().items()
            if kind not in without and passed[kind] < minimum
        ]
        return too_few + self._unlike_recorded(without)

    def _unlike_recorded(self, without: set[str]) -> list[str]:
        """How the run differs from what the docs say of it."""
        recorded = {row for row in recorded_scenarios() if row[0] not in without}
        ran = {
            row
            for nodeid, row in self.scenarios.items()
            if self.results.get(nodeid) == "passed" and row[0] not in without
        }
        return [f"{' '.join(row)!r} is recorded and did not pass" for row in recorded - ran] + [
            f"{' '.join(row)!r} is not recorded; run: make scenarios" for row in ran - recorded
        ]


def minimums() -> dict[str, int]:
    """The number of scenarios that must pass, by kind of peer."""
    lines = [line.split("#")[0].split() for line in MINIMUM_FILE.read_text().splitlines()]
    return {kind: int(count) for kind, count in filter(None, lines)}
