"""The received part of a frame that is not complete yet.

It is counted in a budget that all connections share. If the budget is exhausted, the frame is
refused: the part received is dropped, the rest is skipped, and its header is returned so that the
sender can be answered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from orbitmq.errors import ProtocolError
from orbitmq.protocol.command import Command, decode_parts
from orbitmq.protocol.frame import PREFIX_BYTES, frame_end, header_span

if TYPE_CHECKING:
    from orbitmq.transport.limits import ByteBudget

# What every connection may keep outside the budget: the header of a frame still fits when the
# budget is exhausted, so that its sender gets an answer.
KEPT_BYTES_FREE: Final = 4096
# Smaller chunks are joined at once: a frame that arrives byte by byte must not become millions of
# pieces.
PIECE_BYTES_MIN: Final = 16 * 1024


class IncompleteFrame:
    """What one connection keeps between two chunks.

    It keeps complete frames only while the peer does not read its replies, or while other
    connections have a turn.
    """

    def __init__(self, budget: ByteBudget, frame_bytes_max: int) -> None:
        self._budget = budget
        self._frame_bytes_max = frame_bytes_max
        # Read by the connection for every chunk, written here only.
        self.kept_bytes = 0
        self.skip_bytes = 0
        # Perf: a frame of 2 MiB in chunks of 64 KiB takes 0.1 ms to join, and 4 ms to gather in one
        # bytearray, whose memory is allocated and freed for every frame (timeit).
        self._pieces: list[bytes | bytearray] = []
        self._wanted_bytes = 0
        self._counted_bytes = 0

    def skip(self, chunk: bytes) -> bytes:
        """Discard the rest of a refused frame; returns what follows it."""
        skipped = min(self.skip_bytes, len(chunk))
        self.skip_bytes -= skipped
        return chunk[skipped:]

    def begin(self, head: bytes) -> None:
        """Keep the start of a frame; raises ProtocolError if it cannot be one."""
        # Invariant: what was kept before has been taken.
        assert not self._pieces
        self._wanted_bytes = frame_end(head, 0, self._frame_bytes_max) or 4
        self.add(head)

    def add(self, chunk: bytes) -> None:
        """Keep the next chunk."""
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
        """Whether there is enough to process."""
        return self.kept_bytes >= self._wanted_bytes

    def take(self) -> bytes:
        """Return all that is kept, and keep nothing."""
        chunk = b"".join(self._pieces)
        self.drop()
        return chunk

    def drop(self) -> None:
        """Drop what is kept, and release its bytes."""
        self._pieces.clear()
        self.kept_bytes = 0
        self._budget.give_back(self._counted_bytes)
        self._counted_bytes = 0

    def count(self) -> Command | None:
        """Count what is kept in the budget; returns the header of a refused frame.

        Raises ProtocolError if the budget is exhausted and there is no header to answer.
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
                f"{len(kept)} bytes are incomplete, and the budget of "
                f"{self._budget.bytes_max} for all connections is exhausted"
            )
        header = kept[PREFIX_BYTES:header_end]
        self.skip_bytes = self._wanted_bytes - len(kept)
        self.drop()
        return decode_parts(header, b"", encoding)
