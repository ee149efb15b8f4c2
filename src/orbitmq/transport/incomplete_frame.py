"""The head of a frame whose rest is on its way.

It is counted in a budget that all connections share. With the budget used up a frame is refused:
what came of it is dropped, what is still to come is skipped, and its header is handed out so that
the sender can be told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from orbitmq.errors import ProtocolError
from orbitmq.protocol.command import Command, decode_parts
from orbitmq.protocol.frame import PREFIX_BYTES, frame_end, header_span

if TYPE_CHECKING:
    from orbitmq.transport.limits import ByteBudget

# What every connection may keep without asking the budget: with the budget used up, the header of
# a frame still fits, so that its sender gets an answer.
KEPT_BYTES_FREE: Final = 4096
# Smaller chunks are put together at once: a frame that comes byte by byte must not become millions
# of pieces.
PIECE_BYTES_MIN: Final = 16 * 1024


class IncompleteFrame:
    """What one connection keeps between two chunks.

    Complete frames are kept only while the peer does not take its replies, or while other
    connections have their turn.
    """

    def __init__(self, budget: ByteBudget, frame_bytes_max: int) -> None:
        self._budget = budget
        self._frame_bytes_max = frame_bytes_max
        # Read by the connection for every chunk, written here only.
        self.kept_bytes = 0
        self.skip_bytes = 0
        # Perf: a frame of 2 MiB in chunks of 64 KiB takes 0.1 ms to join, and 4 ms to gather in one
        # bytearray, whose memory is taken and given back for every frame (timeit).
        self._pieces: list[bytes | bytearray] = []
        self._wanted_bytes = 0
        self._counted_bytes = 0

    def skip(self, chunk: bytes) -> bytes:
        """Throw the rest of a refused frame away; return what follows it."""
        skipped = min(self.skip_bytes, len(chunk))
        self.skip_bytes -= skipped
        return chunk[skipped:]

    def begin(self, head: bytes) -> None:
        """Keep the head of a frame; raises ProtocolError when it can never become one."""
        # Invariant: what was kept before has been taken.
        assert not self._pieces
        self._wanted_bytes = frame_end(head, 0, self._frame_bytes_max) or 4
        self.add(head)

    def add(self, chunk: bytes) -> None:
        """Keep what follows."""
        self.kept_bytes += len(chunk)
        if len(chunk) >= PIECE_BYTES_MIN:
            self._pieces.append(chunk)
            return
        last = self._pieces[-1] if self._pieces else b""
        if type(last) is bytearray and len(last) < PIECE_BYTES_MIN:
            last += chunk
        else:
            self._pieces.append(bytearray(chunk))

    @property
    def is_complete(self) -> bool:
        """Whether there is enough to go on."""
        return self.kept_bytes >= self._wanted_bytes

    def take(self) -> bytes:
        """Hand out all that is kept."""
        chunk = b"".join(self._pieces)
        self.drop()
        return chunk

    def drop(self) -> None:
        """Keep nothing any more, and return what was counted."""
        self._pieces.clear()
        self.kept_bytes = 0
        self._budget.give_back(self._counted_bytes)
        self._counted_bytes = 0

    def count(self) -> Command | None:
        """Bring the budget in line with what is kept; return the header of a refused frame.

        Raises ProtocolError when the budget is used up and there is nobody to answer.
        """
        growth = self.kept_bytes - KEPT_BYTES_FREE - self._counted_bytes
        if growth <= 0:
            return None
        if self._budget.take(growth):
            self._counted_bytes += growth
            return None
        return self._refuse()

    def _refuse(self) -> Command:
        kept = b"".join(self._pieces)
        header_end, encoding = header_span(kept, 0, self._wanted_bytes)
        if not header_end <= len(kept) <= self._wanted_bytes:
            raise ProtocolError(
                f"{len(kept)} bytes are kept and the budget of "
                f"{self._budget.bytes_max} for all connections is used up"
            )
        header = kept[PREFIX_BYTES:header_end]
        self.skip_bytes = self._wanted_bytes - len(kept)
        self.drop()
        return decode_parts(header, b"", encoding)
