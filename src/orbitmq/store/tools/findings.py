"""What an examination of a store found: problems and notes, both bounded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final

# Findings kept in full; the others are counted.
_KEPT_MAX: Final = 1000


class FindingKind(Enum):
    """Kinds of findings; the value is the word for programs."""

    # The log, which is the truth.
    BAD_RECORD = "bad-record"
    LOST_RECORDS = "lost-records"
    MISSING_LOG_FILE = "missing-log-file"
    # Queues and index, which can be made again from the log.
    MISSING_ENTRY = "missing-entry"
    WRONG_ENTRY = "wrong-entry"
    STRAY_ENTRY = "stray-entry"
    BAD_QUEUE_FILES = "bad-queue-files"
    MISSING_KEY = "missing-key"
    STRAY_KEY = "stray-key"
    BAD_INDEX_FILE = "bad-index-file"
    # Not damage, but a broker refuses to open the store.
    STRANGE_FILE = "strange-file"


LOG_KINDS: Final = frozenset(
    {FindingKind.BAD_RECORD, FindingKind.LOST_RECORDS, FindingKind.MISSING_LOG_FILE}
)
BUILT_KINDS: Final = frozenset(
    {
        FindingKind.MISSING_ENTRY,
        FindingKind.WRONG_ENTRY,
        FindingKind.STRAY_ENTRY,
        FindingKind.BAD_QUEUE_FILES,
        FindingKind.MISSING_KEY,
        FindingKind.STRAY_KEY,
        FindingKind.BAD_INDEX_FILE,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One problem: what is wrong, and where."""

    kind: FindingKind
    text: str
    file: str = ""
    # The byte in the file, and the physical offset; -1 where there is none.
    position: int = -1
    offset: int = -1
    topic: str = ""
    queue_id: int = -1
    # Queue offsets, the last one included.
    first_number: int = -1
    last_number: int = -1
    # How many records, entries or keys it stands for.
    count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Which part of the log is examined, and what must be on disk for it."""

    log_start: int
    log_end: int
    # Records below have their entries and keys on disk.
    required_until: int
    # Whether a physical offset lies in a damaged part of the log.
    is_lost: Callable[[int], bool]


class Findings:
    """Gathers findings; keeps the first ones and counts the others."""

    def __init__(self) -> None:
        self.problems: list[Finding] = []
        self.counts: Counter[FindingKind] = Counter()
        self.notes: list[str] = []

    def add(self, finding: Finding) -> None:
        """Note a problem."""
        self.counts[finding.kind] += finding.count
        if len(self.problems) < _KEPT_MAX:
            self.problems.append(finding)

    def note(self, text: str) -> None:
        """Note what is no problem and worth knowing."""
        if len(self.notes) < _KEPT_MAX:
            self.notes.append(text)

    def _damages(self) -> list[Finding]:
        """Where in its files the log is damaged."""
        kinds = (FindingKind.BAD_RECORD, FindingKind.LOST_RECORDS)
        return [found for found in self.problems if found.kind in kinds and found.position >= 0]

    def advice(self, root: str) -> list[str]:
        """What can be done."""
        found = set(self.counts)
        lines: list[str] = []
        if found & LOG_KINDS:
            lines.append(
                "the log is damaged: stop the broker and restore the files named above from a "
                "replica or a backup; a rebuild of queues cannot bring messages back"
            )
        lines += [
            "or, when there is no copy, accept the loss of what is damaged there; this tells what "
            f"is lost and changes nothing without --yes: orbitmq store accept-loss {root} --at "
            f"{damage.offset}"
            for damage in self._damages()[:1]
        ]
        if found & BUILT_KINDS and not found & {
            FindingKind.LOST_RECORDS,
            FindingKind.MISSING_LOG_FILE,
        }:
            lines.append(
                f"queues and index can be made again: stop the broker, run: orbitmq store rebuild "
                f"{root}"
            )
        if FindingKind.STRANGE_FILE in found:
            lines.append("move away the files that do not belong to a store; a broker refuses them")
        return lines
