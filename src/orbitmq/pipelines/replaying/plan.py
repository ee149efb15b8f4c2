"""What a replay sends, fixed before the first message is sent.

A request is what the user asked for; a plan is what that meant when it was made: for each queue, which
messages are sent, in pieces. A chunk has a piece of each queue, and is sent as one. Chunks are sent in
their order, so the messages of a queue are sent in theirs.

A plan does not depend on what is stored later. A chunk whose messages are not the same any more is
not sent: its checksum says so.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Sequence
from typing import Final, Literal

import msgspec

from orbitmq.errors import SettingsError

Guarantee = Literal["exactly-once", "at-least-once"]

CHUNK_MESSAGES_MAX: Final = 20_000
# Brokers have room for 100,000 batch writes in a week; a replay takes a tenth of it at most.
CHUNKS_MAX: Final = 10_000
PIECES_MAX: Final = 200_000
# With a rate, a chunk has the messages of this time.
_CHUNK_SECONDS: Final = 5.0
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_ID_LETTERS: Final = 12
_DIGEST_LETTERS: Final = 32


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What the user asked for; times are texts, as given."""

    source: str
    # Which topic of store files; empty for other sources.
    source_topic: str = ""
    into: str
    start: str = ""
    end: str = ""
    where: str = ""
    transform: str = ""
    # The clusters; that of the source is empty for store files.
    namesrv: str
    into_namesrv: str
    guarantee: Guarantee = "exactly-once"

    @property
    def id(self) -> str:
        """A name for it, the same for the same request."""
        # A replay with another guarantee is not another replay.
        asked = msgspec.structs.replace(self, guarantee="exactly-once")
        return hashlib.sha256(msgspec.json.encode(asked)).hexdigest()[:_ID_LETTERS]


class Piece(msgspec.Struct, frozen=True, order=True, array_like=True):
    """Messages of one queue, between two of its offsets."""

    broker_name: str
    queue_id: int
    first: int
    # The offset after the last.
    end: int
    # How many of them are sent.
    messages: int


class Chunk(msgspec.Struct, frozen=True, kw_only=True):
    """What is sent as one: a piece of each queue that has one left."""

    pieces: list[Piece]
    # Of where and when its messages were stored, and of their ids.
    checksum: int

    @property
    def messages(self) -> int:
        """How many messages of the source it sends."""
        return sum(piece.messages for piece in self.pieces)


class Tile(msgspec.Struct, frozen=True, kw_only=True):
    """A piece, the number of its chunk, and its part of the checksum."""

    number: int
    piece: Piece
    checksum: int


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What a replay sends, chunk by chunk."""

    version: Literal[1] = 1
    id: str
    request: Request
    planned_ms: int
    # Messages of the source in the range of time, whether they are sent or not.
    in_range: int
    # When the first and the last message that is sent was stored; 0 if there is none.
    first_ms: int
    last_ms: int
    # What the messages become, after the transformation.
    rows: int
    chunks: list[Chunk]

    @property
    def messages(self) -> int:
        """How many messages of the source are sent."""
        return sum(chunk.messages for chunk in self.chunks)

    @property
    def digest(self) -> str:
        """The same for plans that send the same messages in the same chunks, whenever made."""
        content = msgspec.structs.replace(self, planned_ms=0)
        return hashlib.sha256(msgspec.json.encode(content)).hexdigest()[:_DIGEST_LETTERS]

    def messages_before(self, number: int) -> int:
        """How many messages the chunks before one have."""
        return sum(chunk.messages for chunk in self.chunks[:number])


def check_id(name: str) -> None:
    """Raise for a name that a replay cannot have."""
    if not _NAME.fullmatch(name):
        raise SettingsError(
            f"a replay cannot be named {name[:80]!r}",
            hint="use up to 64 letters, digits, ., _ and -, beginning with a letter or digit",
        )


def chunk_count(messages: int, queues: int, rate: float | None) -> int:
    """Into how many chunks to cut; with a rate, each takes some seconds of it."""
    size = CHUNK_MESSAGES_MAX
    if rate is not None:
        size = max(1, min(size, int(rate * _CHUNK_SECONDS)))
    most = min(CHUNKS_MAX, max(PIECES_MAX // max(queues, 1), 1))
    return min(math.ceil(messages / size), most)


def chunks_of(tiles: Iterable[Tile]) -> list[Chunk]:
    """Put pieces with the same number together."""
    by_number: dict[int, list[Tile]] = {}
    for tile in tiles:
        by_number.setdefault(tile.number, []).append(tile)
    chunks: list[Chunk] = []
    for _, members in sorted(by_number.items()):
        checksum = 0
        for tile in members:
            checksum ^= tile.checksum
        chunks.append(Chunk(pieces=sorted(tile.piece for tile in members), checksum=checksum))
    return chunks


def whole_range(chunks: Sequence[Chunk]) -> list[Piece]:
    """One piece for each queue, with everything that chunks have of it."""
    found: dict[tuple[str, int], Piece] = {}
    for chunk in chunks:
        for piece in chunk.pieces:
            queue = piece.broker_name, piece.queue_id
            known = found.get(queue, piece)
            found[queue] = Piece(
                *queue,
                min(known.first, piece.first),
                max(known.end, piece.end),
                piece.messages + (known.messages if queue in found else 0),
            )
    return [found[queue] for queue in sorted(found)]


def check_same(plan: Plan, request: Request) -> None:
    """Raise if a stored plan is of another request."""
    before, now = msgspec.structs.asdict(plan.request), msgspec.structs.asdict(request)
    differing = [name for name in now if now[name] != before[name]]
    if differing:
        name = differing[0]
        raise SettingsError(
            f"replay {plan.id} is another one: its {name} is {before[name]!r}, not {now[name]!r}",
            hint="give the same arguments as at first, or another --id",
        )
