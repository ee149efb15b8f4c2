"""Pulls that wait count their bytes, and filters take the loop's time in slices."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest

from orbitmq.broker.delivery.filters import is_cached
from orbitmq.clock import SystemClock
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.command import request
from orbitmq.protocol.requests.pulling import PullReply
from orbitmq.record.decode import decode_records
from orbitmq.transport.turns import SlowTurns
from tests.integration.broker.conftest import Peer, Site, pull_header, running
from tests.integration.transport.raw_peer import RawPeer
from tests.waiting import until

KIB = 1024
# Every message takes milliseconds: no tag of it is among these.
COSTLY = " OR ".join(f"a = '{number}'" for number in range(1000))


class SlowMachine(SystemClock):
    """The time of a machine on which every message takes a while, however fast this one is."""

    def __init__(self) -> None:
        self._taken_ms = 0.0

    def monotonic_ms(self) -> float:
        self._taken_ms += 0.2
        return super().monotonic_ms() + self._taken_ms


async def test_a_held_pull_keeps_nothing_that_is_not_needed(site: Site, peer: Peer) -> None:
    await peer.make_topic("T")
    pull = request(pull_header(hold_ms=20_000))
    async with await RawPeer.connect(site.broker.port) as raw:
        tracemalloc.start()
        try:
            for opaque in range(50):
                pull.opaque = opaque
                pull.fields["bname"] = pull.fields["other"] = "x" * 200 * KIB
                await raw.send(pull)
                pull.fields["bname"] = pull.fields["other"] = ""
            await until(lambda: len(site.broker.parts.long_polls) == 50)
            kept_bytes, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()

        assert kept_bytes < 2000 * KIB


@pytest.mark.parametrize("options", [{"connectionWorkBytesMax": str(1024 * KIB)}])
async def test_held_pulls_count_among_the_requests_in_flight(site: Site, peer: Peer) -> None:
    await peer.make_topic("T")
    other = await site.connect()
    held = [asyncio.create_task(peer.pull(hold_ms=20_000)) for _ in range(256)]
    await until(lambda: len(site.broker.parts.long_polls) == 256)

    refused = await peer.pull(hold_ms=20_000)
    assert refused.code == ResponseCode.SYSTEM_BUSY
    assert "too many pulls of this connection are waiting" in refused.remark
    elsewhere = asyncio.create_task(other.pull(hold_ms=20_000))
    await until(lambda: len(site.broker.parts.long_polls) == 257)

    await other.send("T")
    replies = await asyncio.gather(*held, elsewhere)
    assert {reply.code for reply in replies} == {ResponseCode.SUCCESS}
    # Nothing is counted any more.
    again = [asyncio.create_task(peer.pull(offset=1, hold_ms=20_000)) for _ in range(256)]
    await until(lambda: len(site.broker.parts.long_polls) == 256)
    await other.send("T")
    assert {reply.code for reply in await asyncio.gather(*again)} == {ResponseCode.SUCCESS}


async def test_a_costly_filter_is_evaluated_in_slices_and_misses_nothing(tmp_path: Path) -> None:
    async with running(tmp_path, SlowMachine()) as site:  # type: ignore[arg-type]  # time moves on
        peer = await site.connect()
        await peer.make_topic("T")
        wanted = {90, 200, 399}
        for number in range(400):
            await peer.send("T", b"%d" % number, a="999" if number in wanted else "x")
        bodies: list[bytes] = []
        offset = pulls = 0

        while offset < 400:
            reply = await peer.pull(
                "T", offset, expression=COSTLY, expression_type="SQL92", count_max=32
            )
            assert reply.code in (ResponseCode.SUCCESS, ResponseCode.PULL_RETRY_IMMEDIATELY)
            bodies += [message.body for message in decode_records(reply.body)]
            moved = PullReply.decode(reply.fields).next_offset
            assert moved > offset
            offset, pulls = moved, pulls + 1

        assert bodies == [b"90", b"200", b"399"]
        # In one read, as RocketMQ does it, the loop would have stood still for all of them.
        assert pulls > 10


async def test_other_connections_are_served_between_costly_pulls(tmp_path: Path) -> None:
    async with running(tmp_path, SystemClock()) as site:  # type: ignore[arg-type]  # time is real
        peer, healthy = await site.connect(), await site.connect()
        await peer.make_topic("T")
        for _ in range(100):
            await peer.send("T", a="x")
        costly = [
            asyncio.create_task(peer.pull("T", expression=COSTLY, expression_type="SQL92"))
            for _ in range(60)
        ]
        # The first is answered once the others are at the broker.
        await asyncio.wait(costly, return_when=asyncio.FIRST_COMPLETED)

        await healthy.send("T")

        assert sum(not task.done() for task in costly) > 10
        assert {reply.code for reply in await asyncio.gather(*costly)} == {
            ResponseCode.PULL_RETRY_IMMEDIATELY
        }


@pytest.mark.parametrize("expression_type", ["TAG", "SQL92"])
async def test_a_long_filter_is_compiled_in_a_turn_for_what_takes_long(
    site: Site, peer: Peer, expression_type: str
) -> None:
    """Each of many connections may send one: together they would keep the loop for seconds."""
    await peer.make_topic("T")
    expression = "a = 1 OR " * 100 + "a = 2" if expression_type == "SQL92" else "tag" * 100
    joined: list[Callable[[], None]] = []
    with mock.patch.object(SlowTurns, "join", lambda _, take_turn: joined.append(take_turn)):
        pulled = asyncio.create_task(
            peer.pull(expression=expression, expression_type=expression_type)
        )
        await until(lambda: len(joined) == 1)
        other = await site.connect()
        assert (await other.send("T")).code == ResponseCode.SUCCESS
        assert not is_cached(expression, expression_type)

        joined.pop()()
        assert (await pulled).code == ResponseCode.PULL_RETRY_IMMEDIATELY

        # From now on it costs nothing: this is answered without a turn, which the test would hold.
        # The first connection may still wait for one.
        reply = await other.pull(expression=expression, expression_type=expression_type)
        assert reply.code == ResponseCode.PULL_RETRY_IMMEDIATELY
