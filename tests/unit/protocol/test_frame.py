"""Frames: where one ends and how its header is written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import FrameTooLargeError, ProtocolError
from orbitmq.protocol.frame import (
    FRAME_BYTES_MAX,
    HEADER_BYTES_MAX,
    PREFIX_BYTES,
    Encoding,
    encode_frame,
    frame_end,
    header_span,
)


@given(st.binary(max_size=40), st.binary(max_size=40), st.sampled_from(Encoding), st.binary())
def test_header_and_body_are_found_at_any_position_of_the_frame(
    header: bytes, body: bytes, encoding: Encoding, before: bytes
) -> None:
    chunk = before + encode_frame(header, body, encoding)
    start = len(before)

    end = frame_end(chunk, start)
    header_end, found_encoding = header_span(chunk, start, end)

    assert end == len(chunk)
    assert found_encoding is encoding
    assert chunk[start + PREFIX_BYTES : header_end] == header
    assert chunk[header_end:end] == body


def test_the_prefix_counts_all_that_follows_the_length() -> None:
    frame = encode_frame(b"head", b"body!", Encoding.BINARY)

    assert frame == b"\x00\x00\x00\x0d" + b"\x01\x00\x00\x04" + b"head" + b"body!"


@pytest.mark.parametrize("buffer", [bytes, bytearray, memoryview])
def test_any_buffer_will_do(buffer: type[bytes | bytearray | memoryview]) -> None:
    chunk = buffer(encode_frame(b"head", b"", Encoding.JSON))

    assert frame_end(chunk, 0) == 12
    assert header_span(chunk, 0, 12) == (12, Encoding.JSON)


@pytest.mark.parametrize("chunk", [b"", b"\x00", b"\x00\x00\x00"])
def test_the_end_is_unknown_while_the_length_is_incomplete(chunk: bytes) -> None:
    assert frame_end(chunk, 0) == 0
    assert frame_end(b"before" + chunk, 6) == 0


def test_the_end_may_be_beyond_the_chunk() -> None:
    assert frame_end(b"\x00\x00\x01\x00", 0) == 260


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 3])
def test_a_length_without_room_for_the_header_mark_is_refused(length: int) -> None:
    with pytest.raises(ProtocolError, match=f"claims {length} bytes"):
        frame_end(length.to_bytes(4, "big", signed=True), 0)


def test_a_frame_may_be_as_large_as_the_limit_with_its_length_field() -> None:
    largest = (FRAME_BYTES_MAX - 4).to_bytes(4, "big")
    too_large = (FRAME_BYTES_MAX - 3).to_bytes(4, "big")

    assert frame_end(largest, 0) == FRAME_BYTES_MAX
    with pytest.raises(FrameTooLargeError) as refused:
        frame_end(too_large, 0)
    assert refused.value.frame_bytes == FRAME_BYTES_MAX + 1


def test_the_limit_may_be_set() -> None:
    assert frame_end(b"\x00\x00\x00\x10", 0, frame_bytes_max=20) == 20
    with pytest.raises(FrameTooLargeError):
        frame_end(b"\x00\x00\x00\x11", 0, frame_bytes_max=20)


def test_a_header_longer_than_its_frame_is_refused() -> None:
    chunk = b"\x00\x00\x00\x08" + b"\x00\x00\x00\x05" + b"head" + b"next frame"

    with pytest.raises(ProtocolError, match="a header claims 5 bytes in a frame of 12"):
        header_span(chunk, 0, 12)


@pytest.mark.parametrize("encoding", [2, 127, 128, 255])
def test_an_unknown_header_encoding_is_refused(encoding: int) -> None:
    chunk = b"\x00\x00\x00\x08" + bytes([encoding]) + b"\x00\x00\x04head"

    with pytest.raises(ProtocolError, match=f"header encoding {encoding} is unknown"):
        header_span(chunk, 0, 12)


@pytest.mark.parametrize("kept", [0, 4, 7])
def test_a_prefix_that_is_cut_off_is_refused(kept: int) -> None:
    chunk = encode_frame(b"head", b"", Encoding.JSON)[:kept]

    with pytest.raises(ProtocolError, match=f"cut off after {kept} bytes"):
        header_span(chunk, 0, 12)


def test_a_header_may_have_512_kib_and_no_more() -> None:
    frame = encode_frame(bytes(HEADER_BYTES_MAX), b"", Encoding.BINARY)
    too_large = frame[:5] + b"\x08\x00\x01" + frame[8:] + b"x"

    assert header_span(frame, 0, len(frame)) == (len(frame), Encoding.BINARY)
    with pytest.raises(ProtocolError, match="524289 bytes is above the limit of 524288"):
        header_span(too_large, 0, len(too_large))
    with pytest.raises(ProtocolError, match="524289 bytes is above the limit of 524288"):
        encode_frame(bytes(HEADER_BYTES_MAX + 1), b"", Encoding.JSON)


def test_a_frame_too_large_for_its_length_field_is_refused() -> None:
    # Never touched, so the system allocates no memory for it.
    body = bytes(2**31)

    with pytest.raises(FrameTooLargeError):
        encode_frame(b"", body, Encoding.JSON)


@pytest.mark.parametrize(
    ("beginning", "expected"),
    [(b"GET / HTTP/1.1", "HTTP"), (b"PRI * HTTP/2.0", "gRPC"), (b"\x16\x03\x01\x02\x00", "TLS")],
)
def test_the_protocol_of_a_peer_that_mistook_the_port_is_named(
    beginning: bytes, expected: str
) -> None:
    with pytest.raises(ProtocolError, match=expected):
        frame_end(beginning, 0)
