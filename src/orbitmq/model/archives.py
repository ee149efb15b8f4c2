"""Archives: programs that copy topics out of a broker, and how far each is."""

from __future__ import annotations

from typing import Annotated

import msgspec

_Offset = Annotated[int, msgspec.Meta(ge=0, le=2**62)]


class Archive(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One archive of one topic, at one broker."""

    name: str
    topic: str
    # Whether retention waits for it.
    gates: bool
    # Where the rows go, for people.
    target: str = ""
    # Goes up by one each time the topic is deleted: its marks are then about other messages.
    life: Annotated[int, msgspec.Meta(ge=1)] = 1
    # Where in the log the life before ended, as the broker noted; 0 if there was none.
    life_from: Annotated[int, msgspec.Meta(ge=0)] = 0
    opened_ms: int = 0
    # When a mark was last advanced; 0 before the first time.
    advanced_ms: int = 0
    # By queue, the offset of the first message that is not archived; 0 for a queue without one.
    marks: dict[int, _Offset] = msgspec.field(default_factory=dict)

    def mark(self, queue_id: int) -> int:
        """The offset of the first message of a queue that is not archived."""
        return self.marks.get(queue_id, 0)


class ArchiveFigures(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What an archive has left to do at one broker."""

    unarchived_messages: int = 0
    # From its first unarchived message to the end of the log; 0 if there is none.
    held_log_bytes: int = 0
    # When the oldest unarchived message was stored; 0 if there is none.
    oldest_ms: int = 0
    # Log files that are past their time, and wait for it.
    held_files: int = 0
    # Messages that were deleted before they were archived.
    missed_messages: int = 0


class KnownArchives(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All archives that a broker knows, by name."""

    # Goes up with each change.
    revision: Annotated[int, msgspec.Meta(ge=0)] = 0
    # Why there may be more archives than these; then every log file is kept.
    unknown: str = ""
    archives: dict[str, Archive] = msgspec.field(default_factory=dict)
