"""Pulls at a slave and at a master with slaves: who is sent where, and who keeps its offset."""

from __future__ import annotations

import asyncio

import pytest

from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.command import Command
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.configuration import UpdateBrokerConfig
from orbitmq.protocol.requests.offsets import GetMaxOffset, GetMinOffset, SearchOffset
from tests.integration.broker.conftest import Peer, Site
from tests.waiting import until

FOUND = ResponseCode.SUCCESS
NOT_FOUND = ResponseCode.PULL_NOT_FOUND
MOVED = ResponseCode.PULL_OFFSET_MOVED
RETRY = ResponseCode.PULL_RETRY_IMMEDIATELY
SLAVE_ID = 1


def outcome(reply: Command) -> tuple[int, int, int]:
    """The code, the next offset and the suggested broker of a reply."""
    fields = reply.fields
    return reply.code, int(fields["nextBeginOffset"]), int(fields["suggestWhichBrokerId"])


def forget_memory(site: Site) -> None:
    """Let all messages count as too old to be in memory."""
    site.broker.store._reader.near_bytes = -1


@pytest.fixture
async def stored(peer: Peer) -> Peer:
    """A peer of a broker with two messages in queue 0."""
    for body in (b"one", b"two"):
        assert (await peer.send("T", body)).code == 0
    return peer


@pytest.fixture
def slave(site: Site) -> Site:
    """The broker as a slave, whose master is gone."""
    site.broker.parts.pulls.is_slave = lambda: True
    site.broker.parts.pulls.master_is_alive = lambda: False
    return site


async def parked(site: Site) -> None:
    await until(lambda: len(site.broker.parts.long_polls) == 1)


# --- a master ------------------------------------------------------------------------------------


@pytest.mark.parametrize("bulk_count", [None, 32])
async def test_a_master_suggests_the_slave_for_messages_that_left_memory(
    site: Site, stored: Peer, bulk_count: int | None
) -> None:
    near = await stored.pull("T", 0, bulk_count=bulk_count, bulk_bytes=9_999)
    forget_memory(site)
    far = await stored.pull("T", 0, bulk_count=bulk_count, bulk_bytes=9_999)

    assert outcome(near) == (FOUND, 2, 0)
    assert outcome(far) == (FOUND, 2, SLAVE_ID)


async def test_without_slave_reads_a_master_suggests_only_itself(site: Site, stored: Peer) -> None:
    await stored.ask(UpdateBrokerConfig(), b"slaveReadEnable=false\n")
    forget_memory(site)

    assert outcome(await stored.pull("T", 0)) == (FOUND, 2, 0)


# --- a slave whose master is alive ---------------------------------------------------------------


async def test_a_slave_serves_a_consumer_that_lags_and_keeps_it(slave: Site, stored: Peer) -> None:
    slave.broker.parts.pulls.master_is_alive = lambda: True
    forget_memory(slave)

    assert outcome(await stored.pull("T", 0)) == (FOUND, 2, SLAVE_ID)


@pytest.mark.parametrize("offset", [2, 99])
async def test_a_slave_leads_consumers_back_to_a_master_that_is_alive(
    slave: Site, stored: Peer, offset: int
) -> None:
    slave.broker.parts.pulls.master_is_alive = lambda: True

    assert outcome(await stored.pull("T", 0)) == (FOUND, 2, 0)
    assert outcome(await stored.pull("T", offset)) == (RETRY, offset, 0)


async def test_a_client_that_stays_at_a_slave_gets_one_reply_a_second(
    slave: Site, stored: Peer
) -> None:
    slave.broker.parts.pulls.master_is_alive = lambda: True
    pull = asyncio.create_task(stored.pull("T", 2, hold_ms=15_000))
    await parked(slave)

    await slave.clock.advance(900)
    assert len(slave.broker.parts.long_polls) == 1
    await slave.clock.advance(200)

    assert outcome(await pull) == (RETRY, 2, 0)


# --- a slave whose master is gone ----------------------------------------------------------------


async def test_a_slave_holds_pulls_at_its_end_while_the_master_is_gone(
    slave: Site, stored: Peer
) -> None:
    assert outcome(await stored.pull("T", 2)) == (NOT_FOUND, 2, 0)
    pull = asyncio.create_task(stored.pull("T", 2, hold_ms=15_000))
    await parked(slave)

    await stored.send("T", b"three")

    assert outcome(await pull) == (FOUND, 3, 0)


@pytest.mark.usefixtures("slave")
@pytest.mark.parametrize(("queue_id", "end"), [(0, 2), (1, 0)])
async def test_a_slave_that_is_behind_moves_no_consumer(
    stored: Peer, queue_id: int, end: int
) -> None:
    reply = await stored.pull("T", 5, queue_id=queue_id)

    assert outcome(reply) == (RETRY, 5, 0)
    assert int(reply.fields["maxOffset"]) == end


async def test_a_pull_after_the_end_of_a_slave_is_held_until_it_catches_up(
    slave: Site, stored: Peer
) -> None:
    pull = asyncio.create_task(stored.pull("T", 3, hold_ms=15_000))
    await parked(slave)

    await stored.send("T", b"three")
    await stored.send("T", b"four")

    assert outcome(await pull) == (FOUND, 4, 0)


async def test_a_pull_after_the_end_of_a_slave_ends_where_it_began(
    slave: Site, stored: Peer
) -> None:
    pull = asyncio.create_task(stored.pull("T", 7, hold_ms=15_000))
    await parked(slave)

    await slave.clock.advance(14_900)
    assert len(slave.broker.parts.long_polls) == 1
    await slave.clock.advance(200)

    assert outcome(await pull) == (RETRY, 7, 0)


@pytest.mark.usefixtures("slave")
@pytest.mark.parametrize("options", [{"offsetCheckInSlave": "true"}])
async def test_with_offset_check_a_slave_moves_consumers_as_a_master_does(stored: Peer) -> None:
    code, next_offset, _ = outcome(await stored.pull("T", 5))

    assert code == MOVED
    assert next_offset <= 2


@pytest.mark.usefixtures("slave")
async def test_a_slave_without_slave_reads_refuses_pulls(stored: Peer) -> None:
    await stored.ask(UpdateBrokerConfig(), b"slaveReadEnable=false\n")

    reply = await stored.pull("T", 0)

    assert reply.code == ResponseCode.SYSTEM_BUSY
    assert "slaveReadEnable" in (reply.remark or "")


# --- what else consumers ask a slave -------------------------------------------------------------


async def test_a_slave_takes_offsets_that_it_does_not_have_yet(slave: Site, stored: Peer) -> None:
    await stored.heartbeat("client")

    await stored.pull("T", 7, commit=6)

    assert slave.broker.offsets.get("g", "T", 0) == 6


@pytest.mark.usefixtures("slave")
async def test_a_slave_answers_about_the_offsets_of_its_own_store(stored: Peer) -> None:
    lowest = await stored.ask(GetMinOffset(topic="T", queue_id=0))
    highest = await stored.ask(GetMaxOffset(topic="T", queue_id=0))
    first = await stored.ask(SearchOffset(topic="T", queue_id=0, timestamp_ms=Long(0)))

    assert [reply.fields["offset"] for reply in (lowest, highest, first)] == ["0", "2", "0"]
