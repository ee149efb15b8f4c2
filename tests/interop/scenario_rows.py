"""Which scenarios the suite runs with which peers: rows kept in a file, for the docs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

# Kind and version of the peer, and what it does.
Row = tuple[str, str, str]

SCENARIOS_FILE = Path(__file__).with_name("scenarios.txt")
_HEAD = "# Written by: make scenarios. Kind and version of the peer, and what it does.\n"


def recorded_scenarios() -> list[Row]:
    """The rows of the file."""
    rows: list[Row] = []
    for line in SCENARIOS_FILE.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            kind, version, scenario = line.split("\t")
            rows.append((kind, version, scenario))
    return rows


def record_scenarios(rows: Iterable[Row]) -> None:
    """Write the file anew."""
    lines = ["\t".join(row) for row in sorted(set(rows))]
    SCENARIOS_FILE.write_text(_HEAD + "".join(f"{line}\n" for line in lines), encoding="utf-8")
