"""Peers that do not read: the server's memory stays bounded, and nobody else notices."""

from __future__ import annotations

import gc
from dataclasses import replace

import psutil

from orbitmq.clock import ManualClock, settle
from orbitmq.protocol.command import Command
from tests.integration.transport.raw_peer import RawPeer
from tests.integration.transport.serving import ECHO, LARGE, LOCAL, serving
from tests.waiting import until

MIB = 1024 * 1024


def _resident_bytes() -> int:
    gc.collect()
    return int(psutil.Process().memory_info().rss)


def _large_requests(count: int, reply_bytes: int) -> bytes:
    return b"".join(
        Command(code=LARGE, opaque=opaque, fields={"bytes": str(reply_bytes)}).encode()
        for opaque in range(count)
    )


async def test_a_peer_that_asks_for_much_and_does_not_read_costs_no_more_than_the_high_water_mark() -> (
    None
):
    async with (
        serving() as server,
        await RawPeer.connect(server.port, receive_buffer_bytes=65536) as slow,
        await RawPeer.connect(server.port) as other,
    ):
        before = _resident_bytes()
        # 400 MiB of replies, if all of them were made.
        await slow.send(_large_requests(400, MIB))
        await until(lambda: any(c.writing_paused for c in server.connections))
        await settle(500)

        assert _resident_bytes() - before < 40 * MIB
        (connection,) = (c for c in server.connections if c.writing_paused)
        unsent = connection._transport.get_write_buffer_size()
        assert unsent <= LOCAL.write_high_water_bytes + MIB + 1000
        for _ in range(100):
            assert (await other.ask(Command(code=ECHO))).code == 0
        for opaque in range(400):
            answer = await slow.read()
            assert (answer.opaque, answer.code, len(answer.body)) == (opaque, 0, MIB)
        assert _resident_bytes() - before < 60 * MIB
        assert (await slow.ask(Command(code=ECHO))).code == 0


async def test_many_peers_that_do_not_read_are_bounded_one_by_one() -> None:
    async with serving() as server:
        before = _resident_bytes()
        slow = [await RawPeer.connect(server.port, receive_buffer_bytes=65536) for _ in range(20)]
        for peer in slow:
            await peer.send(_large_requests(100, MIB // 2))
        await until(lambda: len([c for c in server.connections if c.writing_paused]) == 20)
        await settle(500)

        assert _resident_bytes() - before < 20 * 4 * MIB
        for peer in slow:
            peer.reset()
        await until(lambda: not server.connections)


async def test_a_peer_that_does_not_read_for_120_seconds_is_closed() -> None:
    clock = ManualClock()
    async with (
        serving(clock=clock) as server,
        await RawPeer.connect(server.port, receive_buffer_bytes=4096) as slow,
    ):
        await slow.send(_large_requests(100, MIB))
        await until(lambda: any(c.writing_paused for c in server.connections))
        (connection,) = server.connections
        for _ in range(11):
            await clock.advance(10_000)
            # Unsent bytes do not count as activity.
            connection.call_oneway(Command(code=ECHO))
        assert server.connections

        await clock.advance(20_000)

        assert not server.connections
        await slow.rest()
        assert server.calls.oneway.in_flight == 0


async def test_a_peer_that_reads_slowly_but_reads_is_not_closed_as_idle() -> None:
    clock = ManualClock()
    config = replace(LOCAL, send_buffer_bytes=65536)
    async with (
        serving(clock=clock, config=config) as server,
        await RawPeer.connect(server.port, receive_buffer_bytes=4096) as slow,
    ):
        # One reply, so large that the connection stays above its low-water mark for long.
        await slow.send(_large_requests(1, 15 * MIB))
        await until(lambda: any(c.writing_paused for c in server.connections))
        (connection,) = server.connections
        received = 0
        for _ in range(26):
            unsent = connection._transport.get_write_buffer_size()
            while connection._transport.get_write_buffer_size() >= unsent:
                received += await _some(slow)
            assert connection.writing_paused
            await clock.advance(10_000)

        assert server.connections
        assert received < 14 * MIB
        slow.close()


async def _some(peer: RawPeer) -> int:
    """Read the bytes available, and let the server send more."""
    try:
        received = len(peer.socket.recv(65536))
    except BlockingIOError:
        received = 0
    await settle(5)
    return received
