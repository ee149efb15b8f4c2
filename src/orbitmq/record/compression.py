"""Compressed bodies: zlib, LZ4 frames or Zstandard, as the system flag says."""

from __future__ import annotations

import zlib
from enum import Enum
from typing import Final

from orbitmq.errors import ProtocolError
from orbitmq.record.layout import COMPRESSION_MASK, SystemFlag

# A small body may decompress to any size; this bounds it.
BODY_BYTES_MAX: Final = 256 * 1024 * 1024
_LZ4_MAGIC: Final = bytes.fromhex("04224d18")
_ZSTD_MAGIC: Final = bytes.fromhex("28b52ffd")
_PIECE_BYTES: Final = 1024 * 1024
# Zstandard expands 4 bytes to at most 128 KiB, so this input expands to at most 16 MiB.
_ZSTD_INPUT_BYTES: Final = 512


class Compression(Enum):
    """How a body is compressed; the values are bits of the system flag."""

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


def looks_compressed(body: bytes, system_flag: int) -> bool:
    """Whether a body begins as the compression of the system flag does."""
    match system_flag & COMPRESSION_MASK:
        case SystemFlag.LZ4:
            return body.startswith(_LZ4_MAGIC)
        case SystemFlag.ZSTD:
            return body.startswith(_ZSTD_MAGIC)
        case _:
            # RFC 1950: method 8, and a check of the first two bytes.
            return len(body) > 1 and body[0] & 0xF == 8 and (body[0] << 8 | body[1]) % 31 == 0


def decompress(body: bytes, system_flag: int) -> bytes:
    """Decompress a body as the system flag says; old clients set no kind and mean zlib."""
    match system_flag & COMPRESSION_MASK:
        case SystemFlag.LZ4:
            return _decompress_lz4(body)
        case SystemFlag.ZSTD:
            return _decompress_zstd(body)
        case 0 | SystemFlag.ZLIB:
            return _decompress_zlib(body)
        case unknown:
            raise ProtocolError(f"unknown compression {unknown:#x}")


def _decompress_zlib(body: bytes) -> bytes:
    decompressor = zlib.decompressobj()
    try:
        decompressed = decompressor.decompress(body, BODY_BYTES_MAX + 1)
    except zlib.error as error:
        raise _broken(body, error) from error
    return _checked(body, [decompressed], is_whole=decompressor.eof)


def _decompress_lz4(body: bytes) -> bytes:
    import lz4.frame

    decompressor = lz4.frame.LZ4FrameDecompressor()
    pieces: list[bytes] = []
    packed = body
    try:
        # It allocates its maximum output at once, so each call gets a small one.
        while not decompressor.eof and _fits(pieces):
            pieces.append(decompressor.decompress(packed, max_length=_PIECE_BYTES))
            packed = b""
            if decompressor.needs_input:
                break
    except (RuntimeError, EOFError) as error:
        raise _broken(body, error) from error
    return _checked(body, pieces, is_whole=decompressor.eof)


def _decompress_zstd(body: bytes) -> bytes:
    import zstandard

    decompressor = zstandard.ZstdDecompressor().decompressobj()
    pieces: list[bytes] = []
    try:
        # Its output has no limit, so it gets little input at a time.
        for at in range(0, len(body), _ZSTD_INPUT_BYTES):
            pieces.append(decompressor.decompress(body[at : at + _ZSTD_INPUT_BYTES]))
            if decompressor.eof or not _fits(pieces):
                break
    except zstandard.ZstdError as error:
        raise _broken(body, error) from error
    return _checked(body, pieces, is_whole=decompressor.eof)


def _fits(pieces: list[bytes]) -> bool:
    return sum(map(len, pieces)) <= BODY_BYTES_MAX


def _checked(body: bytes, pieces: list[bytes], *, is_whole: bool) -> bytes:
    if not _fits(pieces):
        raise ProtocolError(
            f"a compressed body of {len(body)} bytes expands to more than {BODY_BYTES_MAX} bytes"
        )
    if not is_whole:
        raise ProtocolError(f"a compressed body of {len(body)} bytes is cut off")
    return b"".join(pieces)


def _broken(body: bytes, error: Exception) -> ProtocolError:
    return ProtocolError(f"a compressed body of {len(body)} bytes is broken: {error}")
