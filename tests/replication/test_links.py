"""A link does to raw bytes what it is told, and nothing else."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator

import pytest

from orbitmq.clock import SystemClock
from tests.replication.links import Direction, Link, Side
from tests.waiting import until

CLOCK = SystemClock()
WAIT_S = 30


class Peer:
    """One end of a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def say(self, text: bytes) -> None:
        self.writer.write(text)
        await self.writer.drain()

    async def hear(self, count: int) -> bytes:
        async with asyncio.timeout(WAIT_S):
            return await self.reader.readexactly(count)

    async def ended(self) -> str:
        """Wait for the end of the connection, and tell how it came."""
        async with asyncio.timeout(WAIT_S):
            try:
                assert await self.reader.read() == b""
            except ConnectionResetError:
                return "reset"
            return "closed"

    @property
    def hears_nothing(self) -> bool:
        return not self.reader._buffer and not self.reader.at_eof()  # type: ignore[attr-defined]  # no public way to look without waiting

    def close(self) -> None:
        self.writer.transport.abort()


def reset_on_close(peer: Peer) -> None:
    connection = peer.writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


class Target:
    """A server that does nothing by itself."""

    def __init__(self) -> None:
        self.accepted: asyncio.Queue[Peer] = asyncio.Queue()
        self.peers: list[Peer] = []
        self.address = ""

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        self.address = f"{host}:{port}"

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.peers.append(Peer(reader, writer))
        self.accepted.put_nowait(self.peers[-1])

    async def next(self) -> Peer:
        async with asyncio.timeout(WAIT_S):
            return await self.accepted.get()

    def stop(self) -> None:
        self._server.close()
        for peer in self.peers:
            peer.close()


class Pair:
    """A link with a connected pair of peers."""

    def __init__(self, link: Link, target: Target) -> None:
        self.link = link
        self.target = target
        self.openers: list[Peer] = []

    async def opened(self) -> Peer:
        self.openers.append(Peer(*await asyncio.open_connection(self.link.host, self.link.port)))
        return self.openers[-1]

    async def connected(self) -> tuple[Peer, Peer]:
        opener = await self.opened()
        served = await self.target.next()
        await opener.say(b"1")
        await served.say(b"2")
        assert (await served.hear(1), await opener.hear(1)) == (b"1", b"2")
        return opener, served


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    target = Target()
    await target.start()
    link = Link("a to b", target.address)
    await link.start()
    made = Pair(link, target)
    yield made
    for opener in made.openers:
        opener.close()
    target.stop()
    await link.stop()


async def test_bytes_pass_unchanged_in_both_directions(pair: Pair) -> None:
    opener, served = await pair.connected()
    much = bytes(range(256)) * 8192

    *_, there, back = await asyncio.gather(
        opener.say(much), served.say(much[::-1]), served.hear(len(much)), opener.hear(len(much))
    )

    assert there == much
    assert back == much[::-1]


async def test_the_end_of_a_connection_passes(pair: Pair) -> None:
    opener, served = await pair.connected()

    opener.writer.write_eof()
    first = await served.ended()
    await served.say(b"still here")
    heard = await opener.hear(10)
    served.writer.close()

    assert first == "closed"
    assert heard == b"still here"
    assert await opener.ended() == "closed"


@pytest.mark.parametrize(("reset", "end"), [(True, "reset"), (False, "closed")])
async def test_cut_ends_open_connections_on_both_sides_and_no_new_ones(
    pair: Pair, *, reset: bool, end: str
) -> None:
    opener, served = await pair.connected()

    assert pair.link.cut(reset=reset) == 1

    assert (await opener.ended(), await served.ended()) == (end, end)
    await pair.connected()


async def test_a_reset_of_one_side_passes_as_a_reset(pair: Pair) -> None:
    opener, served = await pair.connected()

    reset_on_close(opener)
    opener.close()

    assert await served.ended() == "reset"


async def test_refuse_refuses_new_connections_and_keeps_open_ones(pair: Pair) -> None:
    opener, served = await pair.connected()

    pair.link.refuse()

    with pytest.raises(ConnectionRefusedError):
        await pair.opened()
    await opener.say(b"open")
    assert await served.hear(4) == b"open"
    pair.link.heal()
    await pair.connected()


async def test_delayed_bytes_arrive_later_and_whole(pair: Pair) -> None:
    opener, served = await pair.connected()
    began_ms = CLOCK.monotonic_ms()

    pair.link.delay(150, directions=[Direction.THERE])
    await opener.say(b"late")
    await served.say(b"soon")

    assert await opener.hear(4) == b"soon"
    assert await served.hear(4) == b"late"
    assert CLOCK.monotonic_ms() - began_ms >= 150


async def test_heal_ends_a_delay_at_once(pair: Pair) -> None:
    opener, served = await pair.connected()

    pair.link.delay(WAIT_S * 10_000)
    await opener.say(b"late")
    pair.link.heal()

    assert await served.hear(4) == b"late"


async def test_slow_passes_so_many_bytes_a_second_until_healed(pair: Pair) -> None:
    opener, served = await pair.connected()
    pair.link.slow(1000, [Direction.THERE])
    began_ms = CLOCK.monotonic_ms()

    await opener.say(bytes(1_000_000))
    await served.hear(200)
    took_ms = CLOCK.monotonic_ms() - began_ms
    pair.link.heal()
    await served.hear(1_000_000 - 200)

    assert took_ms >= 150


async def test_held_bytes_and_ends_arrive_once_healed(pair: Pair) -> None:
    opener, served = await pair.connected()

    pair.link.hold()
    await opener.say(b"held")
    opener.writer.write_eof()
    passed = pair.link.counts["bytes passed to the target"]
    other = await pair.opened()
    await other.say(b"too")
    assert served.hears_nothing
    pair.link.heal()

    assert passed == 1
    assert await served.hear(4) == b"held"
    assert await served.ended() == "closed"
    assert await (await pair.target.next()).hear(3) == b"too"


async def test_dropped_bytes_vanish_and_the_connection_stays_deaf_though_not_closed(
    pair: Pair,
) -> None:
    opener, served = await pair.connected()

    pair.link.drop([Direction.THERE])
    await opener.say(b"lost")
    await until(lambda: pair.link.counts["bytes dropped to the target"] == 4)
    pair.link.heal()
    await opener.say(b"after")
    await until(lambda: pair.link.counts["bytes dropped to the target"] == 9)
    await served.say(b"back")

    assert await opener.hear(4) == b"back"
    assert served.hears_nothing
    await pair.connected()


async def test_the_end_of_a_connection_vanishes_too_while_the_link_drops(pair: Pair) -> None:
    opener, served = await pair.connected()

    pair.link.drop()
    opener.writer.close()
    await opener.ended()
    pair.link.heal()
    await pair.connected()

    assert served.hears_nothing
    assert pair.link.open_connections == 2
    assert pair.link.cut(reset=True) == 2
    assert await served.ended() == "reset"


@pytest.mark.parametrize("told", list(Side))
async def test_a_half_open_connection_is_reset_on_one_side_only(pair: Pair, told: Side) -> None:
    opener, served = await pair.connected()
    gone, left = (opener, served) if told is Side.OPENER else (served, opener)

    assert pair.link.half_open(told) == 1
    end = await gone.ended()
    await left.say(b"anybody there?")
    await pair.connected()

    assert end == "reset"
    assert left.hears_nothing


async def test_an_opener_whose_target_is_down_is_reset(pair: Pair) -> None:
    pair.target.stop()

    opener = await pair.opened()

    assert await opener.ended() == "reset"


async def test_addresses_are_replaced_in_replies(pair: Pair) -> None:
    pair.link.rename({"127.0.0.1:20001": "127.0.0.9:30003"})
    opener, served = await pair.opened(), await pair.target.next()
    text = b"at 127.0.0.1:20001."

    await served.say(len(text).to_bytes(4, "big") + text[:9])
    await served.say(text[9:])

    assert await opener.hear(4 + len(text)) == b"\0\0\0\x13at 127.0.0.9:30003."


async def test_a_link_listens_at_the_address_it_is_given(pair: Pair) -> None:
    link = Link("c to b", pair.target.address, host="127.0.0.2")
    await link.start()
    other = Pair(link, pair.target)

    opener, _ = await other.connected()

    assert link.address.startswith("127.0.0.2:")
    opener.close()
    await link.stop()
