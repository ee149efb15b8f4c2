"""The column of bodies: copied together, compressed ones unpacked one by one.

Java's client drops a body that it cannot unpack, and with it all messages behind it in the same
reply, silently. A table that lacks rows without a word is worse than a query that fails, so here
it is an error, which says where the record lies.
"""

from __future__ import annotations

import zlib

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from orbitmq.errors import BatchTooLargeError, ProtocolError
from orbitmq.record.compression import decompress
from orbitmq.record.layout import COMPRESSED, CRC_MASK
from orbitmq.spark.arrow_columns import COLUMN_BYTES_MAX, gather
from orbitmq.spark.odd_records import UNPACKED_BYTES_MAX, unreadable
from orbitmq.spark.record_places import Located


def bodies(content: pa.Buffer, located: Located, broker_name: str) -> pa.Array:
    """The bodies as their producers wrote them.

    Raises ProtocolError at the first that cannot be unpacked, and BatchTooLargeError when they
    unpack to more than a batch of several rows should hold.
    """
    stored = gather(content, located.body_at, located.body_bytes)
    flags = located.numbers("system_flag")
    # Compat: as in Java, an empty body is never unpacked, whatever the flag says.
    packed = np.flatnonzero((flags & COMPRESSED != 0) & (located.body_bytes > 0))
    if not len(packed):
        return stored
    unpacked = _unpacked(content, located, packed, flags, broker_name)
    rows = len(located)
    if stored.nbytes + sum(map(len, unpacked)) > COLUMN_BYTES_MAX:
        raise BatchTooLargeError(rows, bytes_max=COLUMN_BYTES_MAX)
    if len(packed) == rows:
        return pa.array(unpacked, pa.binary())
    places = np.arange(rows)
    places[packed] = rows + np.arange(len(packed))
    return pa.concat_arrays([stored, pa.array(unpacked, pa.binary())]).take(pa.array(places))


def _unpacked(
    content: pa.Buffer,
    located: Located,
    packed: npt.NDArray[np.int64],
    flags: npt.NDArray[np.int32],
    broker_name: str,
) -> list[bytes]:
    records = memoryview(content)
    unpacked: list[bytes] = []
    unpacked_bytes = 0
    for at, body_bytes, flag in zip(
        located.body_at[packed].tolist(),
        located.body_bytes[packed].tolist(),
        flags[packed].tolist(),
        strict=True,
    ):
        try:
            body = decompress(bytes(records[at : at + body_bytes]), flag)
        except ProtocolError as error:
            start = at - located.heads.dtype.itemsize
            raise unreadable(records, start, broker_name, str(error)) from error
        unpacked.append(body)
        unpacked_bytes += len(body)
        if unpacked_bytes > UNPACKED_BYTES_MAX and len(located) > 1:
            raise BatchTooLargeError(len(located), bytes_max=UNPACKED_BYTES_MAX)
    return unpacked


def check_bodies(content: pa.Buffer, located: Located, broker_name: str) -> None:
    """Raise ProtocolError at the first body that does not fit its checksum."""
    records = memoryview(content)
    for at, body_bytes, stored_crc in zip(
        located.body_at.tolist(),
        located.body_bytes.tolist(),
        located.numbers("body_crc").tolist(),
        strict=True,
    ):
        crc = zlib.crc32(records[at : at + body_bytes]) & CRC_MASK
        if crc != stored_crc and body_bytes:
            start = at - located.heads.dtype.itemsize
            reason = f"its body does not fit: checksum is {crc}, stored {stored_crc}"
            raise unreadable(records, start, broker_name, reason)
