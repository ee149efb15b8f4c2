"""Compressed bodies, whole, broken and hostile."""

from __future__ import annotations

import random
import tracemalloc
import zlib

import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import ProtocolError
from orbitmq.record import compression
from orbitmq.record.compression import Compression, compress, decompress
from orbitmq.record.layout import SystemFlag

KINDS = list(Compression)
BODY = b"".join(number.to_bytes(2) for number in range(3000)) + bytes(5000)


@pytest.mark.parametrize("kind", KINDS)
@given(body=st.binary())
def test_bodies_survive_a_round_trip(kind: Compression, body: bytes) -> None:
    assert decompress(compress(body, kind), SystemFlag.COMPRESSED | kind.value) == body


@pytest.mark.parametrize("kind", KINDS)
def test_a_body_of_many_pieces_survives_a_round_trip(kind: Compression) -> None:
    body = random.Random(1).randbytes(1_500_000) + bytes(3_000_000)

    assert decompress(compress(body, kind), kind.value) == body


def test_no_kind_means_zlib() -> None:
    assert decompress(zlib.compress(BODY), SystemFlag.COMPRESSED) == BODY


def test_frames_without_a_length_are_decompressed() -> None:
    # Java writes such frames: its streams do not know the length at the start.
    packer = zstandard.ZstdCompressor(write_content_size=False)
    assert decompress(packer.compress(BODY), SystemFlag.ZSTD) == BODY
    assert decompress(lz4.frame.compress(BODY, store_size=False), SystemFlag.LZ4) == BODY


@pytest.mark.parametrize("kind", [0x400, 0x500, 0x600, 0x700])
def test_other_kinds_are_refused(kind: int) -> None:
    with pytest.raises(ProtocolError, match=f"unknown compression {kind:#x}"):
        decompress(b"", kind | 1)


@pytest.mark.parametrize("kind", KINDS)
def test_a_body_cut_off_anywhere_is_refused(kind: Compression) -> None:
    packed = compress(BODY, kind)

    for end in range(0, len(packed), 7):
        with pytest.raises(ProtocolError, match="is cut off"):
            decompress(packed[:end], kind.value)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_a_damaged_body_is_a_protocol_error_or_another_body(kind: Compression, seed: int) -> None:
    rng = random.Random(seed)
    packed = compress(BODY, kind)
    refused = 0
    for _ in range(1000):
        changed = bytearray(packed)
        for _ in range(rng.randrange(1, 4)):
            changed[rng.randrange(min(len(changed), 200))] = rng.randrange(256)
        try:
            decompress(bytes(changed), kind.value)
        except ProtocolError:
            refused += 1

    assert refused > 100


@pytest.mark.parametrize("kind", KINDS)
def test_a_body_may_expand_to_the_bound_and_no_further(
    kind: Compression, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compression, "BODY_BYTES_MAX", 100_000)

    assert decompress(compress(bytes(100_000), kind), kind.value) == bytes(100_000)
    with pytest.raises(ProtocolError, match="expands to more than 100000 bytes"):
        decompress(compress(bytes(100_001), kind), kind.value)


@pytest.mark.parametrize("kind", KINDS)
def test_a_bomb_takes_little_memory(kind: Compression, monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = compress(bytes(200_000_000), kind)
    monkeypatch.setattr(compression, "BODY_BYTES_MAX", 1_000_000)

    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError, match="expands to more than 1000000 bytes"):
            decompress(bomb, kind.value)
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    # Zstandard expands one piece of input to up to 16 MiB, briefly held twice.
    assert most_bytes < 40_000_000
