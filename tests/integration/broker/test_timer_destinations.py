"""Messages with a due time whose topic is in memory, or is deleted meanwhile."""

from __future__ import annotations

from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.requests.topics import DeleteTopic
from tests.integration.broker.conftest import Peer, Site
from tests.integration.broker.test_timers import bodies, send


async def test_a_message_for_a_topic_in_memory_waits_on_disk_and_comes_once(
    site: Site, peer: Peer
) -> None:
    await peer.make_memory_topic("MEMORY")
    await send(peer, b"later", "MEMORY", TIMER_DELAY_MS="3500")
    early = await bodies(peer, "MEMORY")

    await site.stored("MEMORY", 0, 1)
    await site.clock.advance(3000)

    assert early == []
    assert await bodies(peer, "MEMORY") == [b"later"]


async def test_messages_for_a_topic_that_was_deleted_hold_up_no_others(
    site: Site, peer: Peer
) -> None:
    for topic in ("GONE", "T"):
        await peer.make_topic(topic, read=1, write=1)
    due = str(site.clock.now_ms() + 3500)
    await send(peer, b"for nobody", "GONE", TIMER_DELIVER_MS=due)
    await send(peer, b"other", TIMER_DELIVER_MS=due)

    deleted = await peer.ask(DeleteTopic(topic="GONE"))
    await site.stored("T", 0, 1)
    await peer.make_topic("GONE", read=1, write=1)

    assert deleted.code == ResponseCode.SUCCESS
    assert await bodies(peer) == [b"other"]
    assert await bodies(peer, "GONE") == [b"for nobody"]
