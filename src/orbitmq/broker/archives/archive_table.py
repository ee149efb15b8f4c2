"""The archives that a broker knows, and how far each is, kept in `archives.json`.

File layout, JSON: {"revision": …, "unknown": …, "archives": {name: archive}, "checksum": …}

An archive's mark of a queue is the offset of the first message that it lacks; without a mark that
is 0. Marks are about one life of the topic: they end when the topic is deleted.

Invariant: what this table says is archived is archived. So a mark only grows, by whoever knows what
it was; it is lowered to the end of its queue when messages were lost; and a broker whose table is
not surely complete keeps everything (`unknown`) until an operator says otherwise.

Threads: changed by the event loop; `known` may be read anywhere, since it is replaced as a whole.
Crash: a change is on disk before it is seen. The file `<root>/orbitmq/archives` says that there was a
table with archives: if that is gone or damaged, archives may be missing. Opening an archive writes
the table twice, so that its copy `.bak` has the archive, too.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from orbitmq.broker.config_file import ConfigFile
from orbitmq.disk import PRIVATE, FileModes, off_loop, replace_file
from orbitmq.errors import (
    ArchiveConflictError,
    ArchiveMissingError,
    ArchiveRefusedError,
    ConfigFileError,
)
from orbitmq.model.archives import Archive, KnownArchives

if TYPE_CHECKING:
    from orbitmq.clock import Clock
    from orbitmq.protocol.requests.archives import MarkMove

log = logging.getLogger(__name__)

FILE_NAME: Final = "archives.json"
MARKER_NAME: Final = "archives"
ARCHIVES_MAX: Final = 1000
# Of all archives; each takes about 20 bytes of the file, which is written for each change.
MARKS_MAX: Final = 200_000
TARGET_LENGTH_MAX: Final = 1024
_NAME: Final = re.compile(r"[A-Za-z0-9_.%-]{1,127}")
_MARKER: Final = b"config/archives.json has archives, or had\n"
_TELL: Final = (
    "open missing archives again (orbitmq lake gates lists the others), then: orbitmq lake release "
    "--unknown --broker NAME"
)


class ArchiveTable:
    """All archives of the broker."""

    def __init__(
        self, folder: Path, own_folder: Path, *, clock: Clock, modes: FileModes = PRIVATE
    ) -> None:
        self._file = ConfigFile(folder / FILE_NAME, KnownArchives(), modes)
        self._marker = own_folder / MARKER_NAME
        self._modes = modes
        self._clock = clock
        self._is_written = self._is_marked = False
        # Called after each change.
        self.on_change: Callable[[], None] = lambda: None
        self._file.on_change = lambda _old, _new: self.on_change()

    async def load(self, *, is_newly_promoted: bool = False) -> None:
        """Read the file; without a sound one that should be there, everything is kept."""
        await self._file.load()
        self._is_written = self._file.is_found
        self._is_marked = await off_loop(self._marker.exists)
        if self._file.is_found and not self._file.is_current:
            await self._expect_more("archives.json was damaged, lost or edited")
        elif not self._file.is_found and self._is_marked:
            await self._expect_more("archives.json is missing, and so is its copy")
        elif not self._file.is_found and is_newly_promoted:
            await self._expect_more("this broker was promoted before it had its master's archives")
        if self.known.archives:
            # Somebody may have deleted the folder; the next change tries again if this fails.
            with suppress(ConfigFileError):
                await self._mark_folder()

    async def save(self) -> None:
        """Write what a full disk did not allow before."""
        await self._file.save()

    async def settled(self) -> None:
        """Return once no write is under way: the folder may be opened again."""
        await self._file.settled()

    @property
    def known(self) -> KnownArchives:
        """All archives; a later change does not modify them."""
        return self._file.document

    async def _expect_more(self, reason: str) -> None:
        log.error(
            "archives may be missing, all log files are kept reason=%s hint=%s", reason, _TELL
        )
        await self._file.complete(
            lambda known: _next(known, unknown=known.unknown or reason),
        )

    # --- changes --------------------------------------------------------------------------------

    async def open(
        self,
        name: str,
        *,
        topic: str,
        gates: bool,
        target: str,
        life_from: int,
        starts: Callable[[], Mapping[int, int]],
    ) -> Archive:
        """Open an archive of a topic, or find it.

        A new one begins where its queues begin, which `starts` reads, in a thread, once the gate
        holds. `life_from` is where in the log the topic was deleted last.
        """
        _check_texts(name, target)
        await self._mark_folder()
        asked = Archive(
            name=name,
            topic=topic,
            gates=gates,
            target=target,
            life_from=life_from,
            opened_ms=self._clock.now_ms(),
        )
        await self._change(lambda known: _opened(known, asked))
        begins = {queue: start for queue, start in (await off_loop(starts)).items() if start > 0}
        await self._change(lambda known: _begun(known, name, begins))
        return self.require(name)

    async def advance(
        self, name: str, life: int, moves: Iterable[MarkMove], ends: Mapping[int, int]
    ) -> Archive:
        """Move marks of an archive, all or none; none beyond the end of its queue in `ends`."""
        moves = list(moves)

        def step(known: KnownArchives) -> KnownArchives:
            archive = _required(known, name)
            _check_moves(archive, life, moves, ends)
            moved = {move.queue_id: move.mark for move in moves if move.mark > move.before}
            if not moved:
                return known
            changed = msgspec.structs.replace(
                archive, marks=archive.marks | moved, advanced_ms=self._clock.now_ms()
            )
            return _with(known, changed)

        await self._change(step)
        return self.require(name)

    async def release(self, name: str) -> None:
        """Forget an archive, or, without a name, that there may be unknown ones."""

        def step(known: KnownArchives) -> KnownArchives:
            if not name:
                return _next(known, unknown="")
            _required(known, name)
            return _next(known, archives={k: v for k, v in known.archives.items() if k != name})

        await self._change(step)
        log.warning(
            "archive released, retention no longer waits for it archive=%s",
            name or "those that may be missing",
        )

    async def end_life(self, topic: str) -> None:
        """End the marks of a topic; on disk before what is stored of it is deleted.

        `note_deletions` follows, once it is.
        """

        def step(known: KnownArchives) -> KnownArchives:
            ended = {
                name: msgspec.structs.replace(archive, life=archive.life + 1, marks={})
                for name, archive in known.archives.items()
                if archive.topic == topic
            }
            return _next(known, archives=known.archives | ended) if ended else known

        await self._change(step)

    async def note_deletions(self, deleted: Mapping[str, int]) -> None:
        """Note where in the log topics were deleted."""
        await self._change(lambda known: _without_deleted(known, deleted))

    async def follow(self, master: KnownArchives | None) -> None:
        """Become the table of a master; None if it is of a kind that has none."""
        if master is None:
            if not self._is_written:
                await self._change(msgspec.structs.replace)
            return
        check_bounds(master)
        if master.archives:
            await self._mark_folder()
        if master != self.known or not self._is_written:
            await self._change(lambda _: msgspec.structs.replace(master))

    async def end_deleted(self, deleted: Mapping[str, int]) -> None:
        """At the start of a master, end marks of topics that were deleted after they were moved.

        A slave may have been promoted with a topic that was created again, and marks from before.
        """
        await self._complete(_without_deleted(self.known, deleted))

    async def lower_to_ends(self, ends: Mapping[tuple[str, int], int]) -> None:
        """Lower marks above the ends of their queues: other messages will be there.

        For a log that may lack the newest messages, after a crash, a cut or a promotion, before it
        grows.
        """
        lowered: dict[str, Archive] = {}
        for name, archive in self.known.archives.items():
            above = {
                queue: end
                for queue, mark in archive.marks.items()
                if mark > (end := ends.get((archive.topic, queue), 0))
            }
            if above:
                log.warning(
                    "messages are gone that were archived, marks lowered archive=%s topic=%s "
                    "queues=%s",
                    name, archive.topic, sorted(above),
                )  # fmt: skip
                lowered[name] = msgspec.structs.replace(archive, marks=archive.marks | above)
        if lowered:
            known = self.known
            await self._complete(_next(known, archives=known.archives | lowered))

    async def _complete(self, known: KnownArchives) -> None:
        """Make a change that the next start would make again, also without room on the disk."""
        if known is not self.known:
            await self._file.complete(lambda _: known)

    def require(self, name: str) -> Archive:
        """Look an archive up that must exist."""
        return _required(self.known, name)

    # --- inside ---------------------------------------------------------------------------------

    async def _change(self, step: Callable[[KnownArchives], KnownArchives]) -> None:
        await self._file.change(step)
        self._is_written = True

    async def _mark_folder(self) -> None:
        """Note that there is a table, before it has its first archive."""
        if self._is_marked:
            return
        try:
            await off_loop(replace_file, self._marker, _MARKER, self._modes)
        except OSError as error:
            raise ConfigFileError(
                f"cannot write {self._marker}: {error.strerror}; nothing was changed",
                hint="the folder of the store must be writable, with room on its disk",
            ) from error
        self._is_marked = True


def check_bounds(known: KnownArchives) -> None:
    """Raise ArchiveRefusedError for more archives or marks than a broker takes."""
    if len(known.archives) > ARCHIVES_MAX:
        raise ArchiveRefusedError(
            f"{len(known.archives)} archives are more than {ARCHIVES_MAX}",
            hint="release some: orbitmq lake release NAME",
        )
    marks = sum(len(archive.marks) for archive in known.archives.values())
    if marks > MARKS_MAX:
        raise ArchiveRefusedError(
            f"{marks} marks of all archives are more than {MARKS_MAX}",
            hint="release archives that are not needed: orbitmq lake release NAME",
        )


def _check_texts(name: str, target: str) -> None:
    if not _NAME.fullmatch(name):
        raise ArchiveRefusedError(
            f"an archive cannot be named {name[:60]!r}",
            hint="letters, digits, _, -, . and % are allowed, 127 at most",
        )
    if len(target) > TARGET_LENGTH_MAX or not target.isprintable():
        raise ArchiveRefusedError(
            f"a target of {len(target)} characters is refused: {target[:60]!r}",
            hint=f"{TARGET_LENGTH_MAX} printable characters are allowed",
        )


def _next(known: KnownArchives, **changed: object) -> KnownArchives:
    return msgspec.structs.replace(known, revision=known.revision + 1, **changed)


def _with(known: KnownArchives, archive: Archive) -> KnownArchives:
    changed = _next(known, archives=known.archives | {archive.name: archive})
    check_bounds(changed)
    return changed


def _required(known: KnownArchives, name: str) -> Archive:
    archive = known.archives.get(name)
    if archive is None:
        raise ArchiveMissingError(
            f"there is no archive {name[:127]!r} at this broker",
            hint="open it; it begins with the oldest message that its queues have",
        )
    return archive


def _opened(known: KnownArchives, asked: Archive) -> KnownArchives:
    found = known.archives.get(asked.name)
    if found is None:
        return _with(known, asked)
    for what, is_so, wanted in (
        ("topic", found.topic, asked.topic),
        ("target", found.target, asked.target),
    ):
        if is_so != wanted:
            raise ArchiveRefusedError(
                f"archive {found.name!r} has {what} {is_so!r}, not {wanted[:255]!r}",
                hint=f"choose another name, or release it: orbitmq lake release {found.name}",
            )
    if found.gates and not asked.gates:
        raise ArchiveRefusedError(
            f"retention waits for archive {found.name!r}, and is not to any more",
            hint=f"release it first: orbitmq lake release {found.name}",
        )
    return (
        known
        if found.gates == asked.gates
        else _with(known, msgspec.structs.replace(found, gates=asked.gates))
    )


def _begun(known: KnownArchives, name: str, begins: Mapping[int, int]) -> KnownArchives:
    """The second write of an opening; an archive with marks has begun before."""
    archive = _required(known, name)
    if archive.marks:
        return known
    return _with(known, msgspec.structs.replace(archive, marks=dict(begins)))


def _without_deleted(known: KnownArchives, deleted: Mapping[str, int]) -> KnownArchives:
    """The archives after deletions of topics; marks from before one end."""
    changed = {
        name: msgspec.structs.replace(
            archive,
            life=archive.life + bool(archive.marks),
            life_from=deleted[archive.topic],
            marks={},
        )
        for name, archive in known.archives.items()
        if deleted.get(archive.topic, 0) > archive.life_from
    }
    return _next(known, archives=known.archives | changed) if changed else known


def _check_moves(
    archive: Archive, life: int, moves: Iterable[MarkMove], ends: Mapping[int, int]
) -> None:
    if life != archive.life:
        raise ArchiveConflictError(
            f"archive {archive.name!r} is about life {archive.life} of topic {archive.topic!r}, "
            f"not {life}",
            hint="the topic was deleted since; what it has now is archived from its beginning",
        )
    for move in moves:
        mark = archive.mark(move.queue_id)
        where = f"queue {move.queue_id} of topic {archive.topic!r}"
        if move.before != mark:
            raise ArchiveConflictError(
                f"archive {archive.name!r} is at {mark} in {where}, not at {move.before}",
                hint="another archiver moved it, or this broker lost messages or changes",
            )
        if move.mark < mark:
            raise ArchiveConflictError(
                f"archive {archive.name!r} cannot go back from {mark} to {move.mark} in {where}"
            )
        if move.mark > ends.get(move.queue_id, 0):
            raise ArchiveConflictError(
                f"archive {archive.name!r} cannot be at {move.mark} in {where}, which ends at "
                f"{ends.get(move.queue_id, 0)}",
                hint="messages that were archived are not there any more",
            )
