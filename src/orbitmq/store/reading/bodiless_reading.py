"""Reading a queue in bulk without bodies.

The log has bodies and the rest side by side, so both are read; only the rest is returned. As much is
read, piece by piece, as fills a reply without them, up to a limit.

Threads: any; it may wait for the disk.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from orbitmq.errors import QueueDamagedError
from orbitmq.record.codec import without_bodies
from orbitmq.store.reading.queue_reader import Read, ReadStatus

# How much more may be read, bodies included, than is returned.
READ_FACTOR: Final = 8


def read_without_bodies(
    read: Callable[[int, int], Read], offset: int, count_max: int, bytes_max: int
) -> Read:
    """Read up to `count_max` records and `bytes_max` bytes; at least one record.

    Args:
        read: reads a piece of up to `bytes_max` bytes, from an offset on and up to a count.
        offset: where to start.
        count_max: the most records.
        bytes_max: the most bytes to return.
    """
    whole = read(offset, count_max)
    stored_bytes = whole.record_bytes
    _drop_bodies(whole)
    piece_bytes = whole.record_bytes
    while (
        whole.status is ReadStatus.FOUND
        and len(whole.records) < count_max
        and whole.next_offset < whole.end
        and stored_bytes < READ_FACTOR * bytes_max
        # Otherwise the next piece would most likely not fit, and be read in vain.
        and whole.record_bytes + piece_bytes <= bytes_max
    ):
        try:
            piece = read(whole.next_offset, count_max - len(whole.records))
        except QueueDamagedError:
            # The next read begins with it, and raises.
            break
        stored_bytes += piece.record_bytes
        _drop_bodies(piece)
        if (
            piece.status is not ReadStatus.FOUND
            or whole.record_bytes + piece.record_bytes > bytes_max
        ):
            # The next read begins with this piece.
            break
        whole.records += piece.records
        whole.record_bytes += piece.record_bytes
        piece_bytes = piece.record_bytes
        whole.filtered_count += piece.filtered_count
        whole.next_offset, whole.end = piece.next_offset, piece.end
    return whole


def _drop_bodies(found: Read) -> None:
    found.records = without_bodies(found.records)
    found.record_bytes = sum(map(len, found.records))
