"""Archives that retention may wait for: opened, advanced, listed and released."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import msgspec

from orbitmq.model.archives import ArchiveFigures, KnownArchives
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.headers import Header, Long


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenArchive(Header):
    """Open an archive of a topic, or find it; the body of the reply is an `Archive`."""

    CODE = RequestCode.OPEN_ARCHIVE
    name: str
    topic: str
    gates: bool
    target: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvanceArchive(Header):
    """Move marks of an archive; the body is a list of `MarkMove`, that of the reply an `Archive`.

    All of them are moved, and on disk before the reply, or none.
    """

    CODE = RequestCode.ADVANCE_ARCHIVE
    name: str
    # The life of the topic that they are about.
    life: Long


class MarkMove(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A queue, the mark that it is expected to have, and the one that it gets."""

    queue_id: Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
    before: Annotated[int, msgspec.Meta(ge=0, lt=2**62)]
    mark: Annotated[int, msgspec.Meta(ge=0, lt=2**62)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseArchive(Header):
    """Forget an archive, so that retention does not wait for it; without reply fields."""

    CODE = RequestCode.RELEASE_ARCHIVE
    # Empty for the archives that a broker may have lost.
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListArchives(Header):
    """List all archives of a broker; the body of the reply is an `ArchiveList`."""

    CODE = RequestCode.LIST_ARCHIVES
    # Whether to measure what each has left to do; slaves do not ask for it.
    with_figures: bool = False


class ArchiveList(msgspec.Struct, frozen=True, kw_only=True):
    """The archives of a broker, and, if asked for, what each has left to do."""

    known: KnownArchives
    figures: dict[str, ArchiveFigures] = msgspec.field(default_factory=dict)
