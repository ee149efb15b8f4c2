"""Connections of raw bytes: waking, receiving, sending files, ends."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Queue

import pytest

from orbitmq.errors import ConnectError, ConnectionLostError, SettingsError
from orbitmq.transport.byte_stream import ByteListener, ByteStream, connect

_WAIT_S = 30


@contextmanager
def _pair() -> Iterator[tuple[ByteStream, ByteStream]]:
    accepted: Queue[ByteStream] = Queue()
    listener = ByteListener("127.0.0.1", 0, accepted.put, name="test")
    try:
        near = connect(f"127.0.0.1:{listener.port}", 5000)
        far = accepted.get(timeout=_WAIT_S)
        try:
            yield near, far
        finally:
            near.close()
            far.close()
    finally:
        listener.stop()


def _received(stream: ByteStream, count: int) -> bytes:
    content = bytearray(count)
    at = 0
    while at < count:
        assert stream.wait(_WAIT_S * 1000)
        at += stream.receive_into(memoryview(content)[at:])
    return bytes(content)


def test_both_sides_know_the_connection_by_the_same_addresses() -> None:
    with _pair() as (near, far):
        assert far.peer == near.local


def test_bytes_arrive_as_they_were_sent() -> None:
    with _pair() as (near, far):
        near.send(b"abc", more=True)
        near.send(b"def")

        assert _received(far, 6) == b"abcdef"


def test_a_part_of_a_file_is_sent(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    with _pair() as (near, far), path.open("rb") as file:
        assert near.send_file(file.fileno(), 2, 5) == 5

        assert _received(far, 5) == b"23456"


def test_nothing_to_receive_is_no_error() -> None:
    with _pair() as (near, _):
        assert near.receive_into(memoryview(bytearray(8))) == 0


def test_a_full_socket_takes_no_more_and_is_waited_for() -> None:
    with _pair() as (near, far):
        while near.send(bytes(1 << 20)):
            pass

        assert not near.wait(0, to_write=True)
        for _ in range(100):
            far.receive_into(memoryview(bytearray(1 << 20)))
        assert near.wait(_WAIT_S * 1000, to_write=True)


def test_another_thread_ends_a_wait() -> None:
    with _pair() as (near, _):
        waker = threading.Thread(target=near.wake)
        waker.start()

        assert near.wait(_WAIT_S * 1000)
        waker.join()


def test_a_wake_up_before_the_wait_counts_once() -> None:
    with _pair() as (near, _):
        near.wake()
        near.wake()

        assert near.wait(_WAIT_S * 1000)
        assert not near.wait(0)
        near.wake()
        assert near.wait(_WAIT_S * 1000)


def test_the_end_of_a_connection_is_an_error_with_the_peer() -> None:
    with _pair() as (near, far):
        far.abort()
        assert near.wait(_WAIT_S * 1000)

        with pytest.raises(ConnectionLostError, match=near.peer):
            near.receive_into(memoryview(bytearray(8)))


def test_a_port_that_is_taken_is_named() -> None:
    listener = ByteListener("127.0.0.1", 0, lambda stream: stream.close(), name="test")
    try:
        with pytest.raises(SettingsError, match=f"127.0.0.1:{listener.port}"):
            ByteListener("127.0.0.1", listener.port, lambda stream: stream.close(), name="other")
        with pytest.raises(ConnectError):
            connect("127.0.0.1:1", 1000)
    finally:
        listener.stop()
