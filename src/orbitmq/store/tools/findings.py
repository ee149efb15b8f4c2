"""Findings of a verification: problems and notes, both bounded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final

# Findings kept in full; more are only counted.
_KEPT_MAX: Final = 1000


class FindingKind(Enum):
    """Kinds of findings; the value is the word used in JSON."""

    # The log: messages are lost.
    BAD_RECORD = "bad-record"
    LOST_RECORDS = "lost-records"
    MISSING_LOG_FILE = "missing-log-file"
    # Queues and index, which can be rebuilt from the log.
    MISSING_ENTRY = "missing-entry"
    WRONG_ENTRY = "wrong-entry"
    STRAY_ENTRY = "stray-entry"
    BAD_QUEUE_FILES = "bad-queue-files"
    MISSING_KEY = "missing-key"
    STRAY_KEY = "stray-key"
    BAD_INDEX_FILE = "bad-index-file"
    # The topics' settings, which the queues do not tell.
    MISSING_TOPICS = "missing-topics"
    # A master and its slave, or two slaves.
    REPLICA_DIFFERS = "replica-differs"
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
    # The byte in the file, and the physical offset; -1 if not applicable.
    position: int = -1
    offset: int = -1
    topic: str = ""
    queue_id: int = -1
    # Queue offsets, the last one included.
    first_number: int = -1
    last_number: int = -1
    # How many records, entries or keys it covers.
    count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Which part of the log is examined, and what must be on disk for it."""

    log_start: int
    log_end: int
    # Records below this offset have their entries and keys on disk.
    required_until: int
    # Whether a physical offset is in a damaged part of the log.
    is_lost: Callable[[int], bool]
    # Whether others examine the rest of the log: queues and index are then compared only as far as
    # they lead into this part, and their own files are left to others, too.
    is_part: bool = False


class Findings:
    """Collects findings; keeps the first ones and counts the rest."""

    def __init__(self) -> None:
        self.problems: list[Finding] = []
        self.counts: Counter[FindingKind] = Counter()
        self.notes: list[str] = []

    def add(self, finding: Finding) -> None:
        """Add a problem."""
        self.counts[finding.kind] += finding.count
        if len(self.problems) < _KEPT_MAX:
            self.problems.append(finding)

    def note(self, text: str) -> None:
        """Add something worth knowing that is no problem."""
        if len(self.notes) < _KEPT_MAX:
            self.notes.append(text)

    def _damages(self) -> list[Finding]:
        """Problems with a position in a log file."""
        kinds = (FindingKind.BAD_RECORD, FindingKind.LOST_RECORDS)
        return [found for found in self.problems if found.kind in kinds and found.position >= 0]

    def advice(self, root: str, *, is_clean: bool = True) -> list[str]:
        """What can be done; a store that was not stopped cleanly needs to be opened first."""
        found = set(self.counts)
        lines: list[str] = []
        if found & LOG_KINDS:
            lines.append(
                "the log is damaged: stop the broker and restore the files named above from a "
                "replica or a backup; rebuilding queues does not bring messages back"
            )
        lines += [
            "without a copy, accept the loss; this shows what is lost, and changes nothing without "
            f"--yes: orbitmq store accept-loss {root} --at {damage.offset}"
            for damage in self._damages()[:1]
        ]
        if found & BUILT_KINDS and not found & {
            FindingKind.LOST_RECORDS,
            FindingKind.MISSING_LOG_FILE,
        }:
            lines.append(
                "queues and index can be rebuilt: stop the broker, run: orbitmq store rebuild "
                f"{root}"
                if is_clean
                else "the store was not stopped cleanly, or is open: starting its broker recovers "
                "it, queues and index included; verify it again after that"
            )
        if FindingKind.MISSING_TOPICS in found:
            lines.append(
                "restore config/topics.json; without it, a starting broker recovers the topics "
                "from their queues, but not their permissions, attributes and unused queues"
            )
        if FindingKind.STRANGE_FILE in found:
            lines.append(
                "move away the files that do not belong to a store: with them, no broker opens it"
            )
        return lines
