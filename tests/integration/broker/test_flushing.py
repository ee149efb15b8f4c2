"""When a send gets its reply: after the flush, at the timeout, or never."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from orbitmq.clock import ManualClock, settle
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import Command, request
from orbitmq.protocol.requests.offsets import GetMaxOffset
from orbitmq.protocol.requests.sending import SendBatch
from orbitmq.record.batch import BatchedMessage, encode_batch
from tests.integration.broker.conftest import (
    Disk,
    Peer,
    Site,
    pull_header,
    running,
    send_header,
)
from tests.integration.transport.raw_peer import RawPeer

# The second of them goes by the hot path.
BATCHES = [
    encode_batch([BatchedMessage(flag=0, body=b"m", properties=properties)])
    for properties in (b"", b"UNIQ_KEY\x01A1\x02")
]
both_ways = pytest.mark.parametrize("body", BATCHES, ids=["ordinary", "hot"])


def numbered(asked: Command, opaque: int) -> Command:
    asked.opaque = opaque
    return asked


@both_ways
async def test_only_sends_wait_for_the_disk(site: Site, disk: Disk, body: bytes) -> None:
    peer = await site.connect()
    await peer.make_topic("T")
    await peer.send("T", b"before")
    disk.hold()
    async with await RawPeer.connect(site.broker.port) as raw:
        await raw.send(
            numbered(request(send_header("T"), b"held"), 1),
            numbered(Command(code=RequestCode.GET_ALL_TOPIC_CONFIG), 2),
            numbered(request(pull_header("T", 0)), 3),
            numbered(request(send_header("T", kind=SendBatch, batch=True), body), 4),
            numbered(request(send_header("T", WAIT="false"), b"in no hurry"), 5),
        )
        early = [await raw.read() for _ in range(3)]
        await disk.held()
        unseen = site.broker.store.end_of("T", 0)
        appended = await peer.ask(GetMaxOffset(topic="T", queue_id=0, committed=False))

        disk.release()
        late = [await raw.read() for _ in range(2)]

    assert {reply.opaque for reply in early} == {2, 3, 5}
    assert {reply.opaque for reply in late} == {1, 4}
    assert {reply.code for reply in early + late} == {ResponseCode.SUCCESS}
    assert unseen == 1
    assert appended.fields["offset"] == "4"


@both_ways
async def test_a_send_that_waits_too_long_gets_its_position(
    site: Site, peer: Peer, disk: Disk, body: bytes
) -> None:
    await peer.make_topic("T")
    disk.hold()
    plain = asyncio.create_task(peer.send("T"))
    batch = asyncio.create_task(peer.ask(send_header("T", kind=SendBatch, batch=True), body))
    await disk.held()
    await site.advance_until(lambda: len(site.broker.parts.confirmations) == 2, step_ms=0)

    await site.clock.advance(4_900)
    assert not plain.done()
    await site.clock.advance(300)

    for reply in (await plain, await batch):
        assert reply.code == ResponseCode.FLUSH_DISK_TIMEOUT
        assert {"msgId", "queueId", "queueOffset"} <= reply.fields.keys()
    disk.release()
    assert (await peer.send("T")).code == ResponseCode.SUCCESS


@both_ways
async def test_nothing_is_acknowledged_once_a_sync_failed(
    site: Site, peer: Peer, disk: Disk, body: bytes
) -> None:
    await peer.make_topic("T")
    await peer.send("T", b"safe")
    disk.hold()
    waiting = [asyncio.create_task(peer.send("T")) for _ in range(3)]
    waiting.append(
        asyncio.create_task(peer.ask(send_header("T", kind=SendBatch, batch=True), body))
    )
    await disk.held()
    await site.advance_until(lambda: len(site.broker.parts.confirmations) == 4, step_ms=0)

    disk.fail()
    await site.advance_until(lambda: len(site.broker.parts.confirmations) == 0)
    replies = [await reply for reply in waiting] + [await peer.send("T")]

    assert {reply.code for reply in replies} == {ResponseCode.SERVICE_NOT_AVAILABLE}
    assert all(reply.remark for reply in replies)
    assert [message.body for message in await peer.read("T")] == [b"safe"]


@pytest.mark.parametrize("options", [{"flushDiskType": "ASYNC_FLUSH"}])
async def test_without_sync_flush_answers_do_not_wait(peer: Peer, disk: Disk) -> None:
    await peer.make_topic("T")
    disk.hold()

    plain = await peer.send("T", b"one")
    batch = await peer.ask(send_header("T", kind=SendBatch, batch=True), BATCHES[0])
    special = await peer.send("T", b"three", unique_id=None)

    assert plain.code == batch.code == special.code == ResponseCode.SUCCESS
    assert [message.body for message in await peer.read("T")] == [b"one", b"m", b"three"]


@pytest.mark.parametrize("options", [{"sendThreadPoolQueueCapacity": "3"}])
async def test_sends_above_the_limit_of_those_that_wait_are_refused_with_that_limit(
    site: Site, peer: Peer, disk: Disk
) -> None:
    await peer.make_topic("T")
    disk.hold()
    waiting = [asyncio.create_task(peer.send("T")) for _ in range(3)]
    await disk.held()
    await site.advance_until(lambda: len(site.broker.parts.confirmations) == 3, step_ms=0)

    refused = await peer.send("T")
    disk.release()

    assert refused.code == ResponseCode.SYSTEM_BUSY
    assert "sendThreadPoolQueueCapacity=3" in refused.remark
    assert {(await reply).code for reply in waiting} == {ResponseCode.SUCCESS}


async def test_a_stop_answers_sends_that_wait_for_the_disk(tmp_path: Path, disk: Disk) -> None:
    async with running(tmp_path, ManualClock()) as site:
        peer = await site.connect()
        await peer.make_topic("T")
        disk.hold()
        waiting = asyncio.create_task(peer.send("T"))
        await disk.held()
        stop = asyncio.create_task(site.broker.stop())
        await settle()

        disk.release()
        await stop

        assert (await waiting).code == ResponseCode.SUCCESS


async def test_a_broker_whose_disk_failed_can_be_stopped(tmp_path: Path, disk: Disk) -> None:
    async with running(tmp_path, ManualClock()) as site:
        peer = await site.connect()
        await peer.make_topic("T")
        await peer.send("T", DELAY="1")
        disk.hold()
        waiting = asyncio.create_task(peer.send("T"))
        await disk.held()
        stop = asyncio.create_task(site.broker.stop())
        await settle()

        disk.fail()
        await site.advance_until(stop.done)
        await stop

        assert (await waiting).code == ResponseCode.SERVICE_NOT_AVAILABLE
    disk.release()
