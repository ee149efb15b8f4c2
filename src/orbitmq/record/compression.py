"""Compressed bodies: zlib, LZ4 frames and Zstandard; the system flag says which."""

from __future__ import annotations

import zlib
from enum import Enum
from typing import Final

from orbitmq.errors import ProtocolError
from orbitmq.record.layout import COMPRESSION_MASK, SystemFlag

# A body may be small and unpack to anything; this bounds what it may become.
BODY_BYTES_MAX: Final = 256 * 1024 * 1024
_PIECE_BYTES: Final = 1024 * 1024
# Zstandard makes at most 128 KiB of 4 bytes, so that this much makes at most 16 MiB.
_ZSTD_INPUT_BYTES: Final = 512


class Compression(Enum):
    """How a body is compressed; the value is what the system flag says."""

    LZ4 = int(SystemFlag.LZ4)
    ZSTD = int(SystemFlag.ZSTD)
    ZLIB = int(SystemFlag.ZLIB)


def compress(body: bytes, kind: Compression, level: int = 5) -> bytes:
    """Compress a body; the caller sets the bits of the system flag."""
    match kind:
        case Compression.ZLIB:
            return zlib.compress(body, level)
        case Compression.LZ4:
            import lz4.frame

            packed: bytes = lz4.frame.compress(body)
            return packed
        case Compression.ZSTD:
            import zstandard

            return zstandard.ZstdCompressor(level=level).compress(body)


def decompress(body: bytes, system_flag: int) -> bytes:
    """Unpack a body as the system flag says; old clients set no kind and mean zlib."""
    match system_flag & COMPRESSION_MASK:
        case SystemFlag.LZ4:
            return _unpack_lz4(body)
        case SystemFlag.ZSTD:
            return _unpack_zstd(body)
        case 0 | SystemFlag.ZLIB:
            return _unpack_zlib(body)
        case unknown:
            raise ProtocolError(f"compression {unknown:#x} is unknown")


def _unpack_zlib(body: bytes) -> bytes:
    unpacker = zlib.decompressobj()
    try:
        unpacked = unpacker.decompress(body, BODY_BYTES_MAX + 1)
    except zlib.error as error:
        raise _broken(body, error) from error
    return _checked(body, [unpacked], is_whole=unpacker.eof)


def _unpack_lz4(body: bytes) -> bytes:
    import lz4.frame

    unpacker = lz4.frame.LZ4FrameDecompressor()
    pieces: list[bytes] = []
    packed = body
    try:
        # It takes the memory it is allowed at once, so it is allowed a little at a time.
        while not unpacker.eof and _fits(pieces):
            pieces.append(unpacker.decompress(packed, max_length=_PIECE_BYTES))
            packed = b""
            if unpacker.needs_input:
                break
    except (RuntimeError, EOFError) as error:
        raise _broken(body, error) from error
    return _checked(body, pieces, is_whole=unpacker.eof)


def _unpack_zstd(body: bytes) -> bytes:
    import zstandard

    unpacker = zstandard.ZstdDecompressor().decompressobj()
    pieces: list[bytes] = []
    try:
        # It unpacks all it is given, so it is given a little at a time.
        for at in range(0, len(body), _ZSTD_INPUT_BYTES):
            pieces.append(unpacker.decompress(body[at : at + _ZSTD_INPUT_BYTES]))
            if unpacker.eof or not _fits(pieces):
                break
    except zstandard.ZstdError as error:
        raise _broken(body, error) from error
    return _checked(body, pieces, is_whole=unpacker.eof)


def _fits(pieces: list[bytes]) -> bool:
    return sum(map(len, pieces)) <= BODY_BYTES_MAX


def _checked(body: bytes, pieces: list[bytes], *, is_whole: bool) -> bytes:
    if not _fits(pieces):
        raise ProtocolError(f"a body of {len(body)} bytes unpacks to over {BODY_BYTES_MAX} bytes")
    if not is_whole:
        raise ProtocolError(f"a compressed body of {len(body)} bytes is cut off")
    return b"".join(pieces)


def _broken(body: bytes, error: Exception) -> ProtocolError:
    return ProtocolError(f"a compressed body of {len(body)} bytes is broken: {error}")
