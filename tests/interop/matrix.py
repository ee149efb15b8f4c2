"""Which official peer did what: the table at the end of an interop run, and its minimum.

A test takes part by `@pytest.mark.scenario("broker", "what it does")`: the first argument names the
fixture that plays the peer, whose parameter is a `Peer`. Nothing else has to be registered.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.interop.peers import Peer

MINIMUM_FILE = Path(__file__).with_name("scenarios_min.txt")


@dataclass(slots=True)
class Matrix:
    """Results by scenario, filled while the tests run."""

    scenarios: dict[str, tuple[Peer, str]] = field(default_factory=dict)
    results: dict[str, str] = field(default_factory=dict)

    def add(self, item: pytest.Item) -> None:
        """Take up a test, if it carries a scenario."""
        marker = item.get_closest_marker("scenario")
        if marker is None:
            return
        fixture, name = marker.args
        peer = item.callspec.params[fixture]  # type: ignore[attr-defined]  # parametrised, so it has one
        self.scenarios[item.nodeid] = (peer, name)

    def record(self, report: pytest.TestReport) -> None:
        """Note how one phase of a test ended."""
        if report.nodeid not in self.scenarios:
            return
        if report.failed:
            self.results[report.nodeid] = "failed"
        elif report.when == "call" and report.passed:
            self.results.setdefault(report.nodeid, "passed")

    def rows(self) -> list[str]:
        """The table: client, version, scenario, how many of its variants ended how."""
        counts: dict[tuple[str, str, str], Counter[str]] = {}
        for nodeid, (peer, name) in self.scenarios.items():
            row = counts.setdefault((peer.kind, peer.version, name), Counter())
            row[self.results.get(nodeid, "not run")] += 1
        if not counts:
            return []
        return [f"{'client':9} {'version':8} {'scenario':56} result"] + [
            f"{kind:9} {version:8} {name:56} "
            + ", ".join(
                f"{ended} {row[ended]}" for ended in ("passed", "failed", "not run") if row[ended]
            )
            for (kind, version, name), row in sorted(counts.items())
        ]

    def shortfalls(self, *, without: set[str]) -> list[str]:
        """What is missing to the kept minimum, leaving out kinds that were not to run."""
        passed = Counter(
            peer.kind
            for nodeid, (peer, _) in self.scenarios.items()
            if self.results.get(nodeid) == "passed"
        )
        return [
            f"{kind}: {passed[kind]} scenarios passed, {minimum} expected by {MINIMUM_FILE.name}"
            for kind, minimum in minimums().items()
            if kind not in without and passed[kind] < minimum
        ]


def minimums() -> dict[str, int]:
    """The number of scenarios that must pass, by kind of peer."""
    lines = [line.split("#")[0].split() for line in MINIMUM_FILE.read_text().splitlines()]
    return {kind: int(count) for kind, count in filter(None, lines)}
