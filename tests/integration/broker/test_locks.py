"""Locks of queues: who gets them, what they may cost, what a restart keeps."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from orbitmq import java_json
from orbitmq.broker.groups.lock_file import FILE_NAME
from orbitmq.broker.groups.members import CLIENT_ID_LENGTH_MAX
from orbitmq.broker.handlers.locks import QUEUES_PER_REQUEST_MAX
from orbitmq.clock import ManualClock
from orbitmq.model.queues import MessageQueue
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.command import Command
from orbitmq.protocol.requests.clients import UnregisterClient
from orbitmq.protocol.requests.locking import LockedQueues, LockQueues, QueuesToLock, UnlockQueues
from orbitmq.store.opening.parts import OWN_FOLDER
from tests.integration.broker.conftest import Peer, Site, running
from tests.waiting import until


def queue(queue_id: int, topic: str = "T", broker_name: str = "broker-a") -> MessageQueue:
    return MessageQueue(topic=topic, broker_name=broker_name, queue_id=queue_id)


QUEUES = [queue(number) for number in range(3)]


async def ask(peer: Peer, client_id: str, queues: list[MessageQueue], group: str = "g") -> Command:
    asked = QueuesToLock(client_id=client_id, consumer_group=group, queues=queues)
    return await peer.ask(LockQueues(), java_json.encode(asked))


async def lock(peer: Peer, client_id: str, queues: list[MessageQueue] = QUEUES) -> list[int]:
    reply = await ask(peer, client_id, queues)
    assert reply.code == ResponseCode.SUCCESS, reply.remark
    return sorted(queue.queue_id for queue in java_json.decode(reply.body, LockedQueues).queues)


async def unlock(peer: Peer, client_id: str, queues: list[MessageQueue]) -> None:
    asked = QueuesToLock(client_id=client_id, consumer_group="g", queues=queues)
    await peer.ask(UnlockQueues(), java_json.encode(asked))


async def test_a_queue_is_locked_by_one_client_at_a_time(site: Site, peer: Peer) -> None:
    await peer.make_topic("T")
    await peer.heartbeat("c1")
    assert await lock(peer, "c1", QUEUES[:2]) == [0, 1]
    assert await lock(peer, "c2") == [2]

    await unlock(peer, "c1", QUEUES[:1])
    assert await lock(peer, "c2") == [0, 2]

    await site.clock.advance(59_000)
    assert await lock(peer, "c2") == [0, 2]
    await site.clock.advance(1_500)
    assert await lock(peer, "c2") == [0, 1, 2]


async def test_locks_end_with_leaving_and_35_seconds_after_a_lost_connection(site: Site) -> None:
    first, second = await site.connect(), await site.connect()
    await first.make_topic("T")
    await first.heartbeat("c1")
    await second.heartbeat("c2")
    await lock(first, "c1")
    await first.ask(UnregisterClient(client_id="c1", consumer_group="g"))
    assert await lock(second, "c2") == [0, 1, 2]

    await second.rpc.stop()
    await until(lambda: len(site.broker.tables.members.clients) == 0)
    third = await site.connect()
    assert await lock(third, "c3") == []
    await site.clock.advance(35_100)
    assert await lock(third, "c3") == [0, 1, 2]


async def members(site: Site) -> tuple[Peer, Peer, Peer]:
    """Three members of a group, each of which knows of the others."""
    first, second, third = [await site.connect() for _ in range(3)]
    await first.make_topic("T")
    for number, peer in enumerate((first, second, third), 1):
        await peer.heartbeat(f"c{number}")
    await until(lambda: [len(one.told) for one in (first, second, third)] == [3, 2, 1])
    for peer in (first, second, third):
        peer.told.clear()
    return first, second, third


async def test_a_member_that_was_refused_a_lock_is_told_when_one_is_released(site: Site) -> None:
    first, second, third = await members(site)
    await lock(first, "c1")
    assert await lock(second, "c2", QUEUES[:1]) == []

    await unlock(first, "c1", QUEUES[:1])
    await until(lambda: second.told == ["g"])
    await unlock(first, "c1", QUEUES[1:2])
    assert await lock(second, "c2") == [0, 1]
    await unlock(first, "c1", QUEUES[2:])
    await until(lambda: second.told == ["g", "g"])

    # Nobody else waited, and once it has got what it wants nobody does.
    assert await lock(second, "c2") == [0, 1, 2]
    await unlock(second, "c2", QUEUES)
    assert await lock(third, "c3") == [0, 1, 2]
    assert (first.told, second.told, third.told) == ([], ["g", "g"], [])


async def test_a_release_that_released_nothing_is_told_to_nobody(site: Site) -> None:
    first, second, _ = await members(site)
    await lock(first, "c1")
    await lock(second, "c2")

    await unlock(second, "c2", QUEUES)
    await unlock(first, "c1", [queue(3), queue(0, topic="NoSuch")])

    assert await lock(second, "c2") == []
    assert second.told == []


async def test_members_that_wait_are_told_when_a_lock_expires(site: Site) -> None:
    first, second, _ = await members(site)
    await lock(first, "c1")
    await first.rpc.stop()
    await until(lambda: second.told == ["g"])
    assert await lock(second, "c2") == []

    await site.advance_until(lambda: second.told == ["g", "g"], step_ms=1_000)

    assert await lock(second, "c2") == [0, 1, 2]


async def test_a_client_that_leaves_a_listener_at_work_keeps_its_locks_until_they_expire(
    site: Site,
) -> None:
    first, second, _ = await members(site)
    await lock(first, "c1")
    await first.ask(UnregisterClient(client_id="c1", consumer_group="g", keeps_locks=True))
    await until(lambda: second.told == ["g"])

    assert await lock(second, "c2") == []
    await site.clock.advance(34_000)
    assert await lock(second, "c2") == []
    await site.clock.advance(1_100)
    assert await lock(second, "c2") == [0, 1, 2]


async def test_a_lost_client_holds_its_locks_for_as_long_as_it_trusts_them(site: Site) -> None:
    first, second, _ = await members(site)
    asked = QueuesToLock(client_id="c1", consumer_group="g", queues=QUEUES, trust_ms=10_000)
    await first.ask(LockQueues(), java_json.encode(asked))
    await first.rpc.stop()
    await until(lambda: second.told == ["g"])

    await site.clock.advance(14_000)
    assert await lock(second, "c2") == []
    await site.clock.advance(1_100)
    assert await lock(second, "c2") == [0, 1, 2]


async def test_a_long_list_of_queues_must_be_standard_json(peer: Peer) -> None:
    await peer.make_topic("T")
    await peer.heartbeat("c1")
    body = b'{"clientId":"c1","consumerGroup":"g","mqSet":[' + b"{1:2}," * 20_000 + b"]}"

    for header in (LockQueues(), UnlockQueues()):
        reply = await peer.ask(header, body)
        assert reply.code == ResponseCode.SYSTEM_ERROR
        assert "not standard" in reply.remark


async def test_a_lock_is_renewed_before_the_first_heartbeat_after_a_restart(tmp_path: Path) -> None:
    async with running(tmp_path, ManualClock()) as site:
        peer = await site.connect()
        await peer.make_topic("T")
        await peer.heartbeat("c1")
        await lock(peer, "c1")

    async with running(tmp_path, ManualClock()) as site:
        back, other = await site.connect(), await site.connect()

        assert await lock(other, "c2") == []
        assert await lock(back, "c1") == [0, 1, 2]


async def test_queues_that_do_not_exist_are_not_locked(site: Site, peer: Peer) -> None:
    await peer.make_topic("T", read=2, write=2)
    await peer.heartbeat("c1")

    wanted = [
        queue(1),
        queue(2),
        queue(-1),
        queue(0, topic="NoSuch"),
        queue(0, topic="x" * 1_000_000),
        queue(0, broker_name="another"),
    ]

    assert await lock(peer, "c1", wanted) == [1]
    assert len(site.broker.tables.locks) == 1


async def test_the_retry_topic_of_a_group_is_locked_too(peer: Peer) -> None:
    await peer.heartbeat("c1")

    assert await lock(peer, "c1", [queue(0, topic="%RETRY%g")]) == [0]


@pytest.mark.parametrize("group", ["nobody", "no way", "x" * 1_000_000])
async def test_groups_that_do_not_exist_lock_nothing(site: Site, peer: Peer, group: str) -> None:
    await peer.make_topic("T")

    refused = await ask(peer, "c1", QUEUES, group)

    assert refused.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert len(refused.remark) < 500
    assert len(site.broker.tables.locks) == 0


async def test_a_request_locks_a_bounded_number_of_queues_for_a_bounded_client_id(
    site: Site, peer: Peer
) -> None:
    await peer.make_topic("T")
    await peer.heartbeat("c1")

    many = await ask(peer, "c1", [queue(n) for n in range(QUEUES_PER_REQUEST_MAX + 1)])
    long_id = await ask(peer, "c" * (CLIENT_ID_LENGTH_MAX + 1), QUEUES)

    assert (many.code, long_id.code) == (ResponseCode.NO_PERMISSION, ResponseCode.NO_PERMISSION)
    assert str(QUEUES_PER_REQUEST_MAX) in many.remark
    assert str(CLIENT_ID_LENGTH_MAX) in long_id.remark
    assert len(site.broker.tables.locks) == 0


async def test_repeated_requests_write_about_as_much_as_they_send(site: Site, peer: Peer) -> None:
    await peer.make_topic("T", read=QUEUES_PER_REQUEST_MAX, write=QUEUES_PER_REQUEST_MAX)
    await peer.heartbeat("c1")
    everything = [queue(number) for number in range(QUEUES_PER_REQUEST_MAX)]
    client_id = "c" * CLIENT_ID_LENGTH_MAX
    await lock(peer, client_id, everything)
    file = site.folder / "store" / OWN_FOLDER / FILE_NAME
    sizes = []

    for _ in range(15):
        await unlock(peer, client_id, everything[:1])
        await lock(peer, client_id, everything[:1])
        sizes.append(file.stat().st_size)

    grown = [after - before for before, after in itertools.pairwise(sizes)]
    assert max(grown) < 3 * CLIENT_ID_LENGTH_MAX
    for _ in range(4):
        await unlock(peer, client_id, everything)
        await lock(peer, client_id, everything)
    assert file.stat().st_size < 4 * sizes[0]
