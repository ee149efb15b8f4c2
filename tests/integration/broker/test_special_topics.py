"""Topics with special rules: kept in memory, or forbidden to a group."""

from __future__ import annotations

from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.requests.groups import ForbidReading
from orbitmq.protocol.requests.topics import UpdateTopic
from tests.integration.broker.conftest import Peer, Site


async def test_a_delayed_message_arrives_in_a_memory_topic_with_its_delay_level(
    site: Site, peer: Peer
) -> None:
    await peer.ask(
        UpdateTopic(
            topic="ticks",
            template_topic="TBW102",
            read_queues=1,
            write_queues=1,
            permission=6,
            filter_type="SINGLE_TAG",
            attributes="+orbitmq.storage=memory",
        )
    )

    reply = await peer.send("ticks", b"later", DELAY="1", own="kept")
    await site.stored("ticks", 0, 1)
    (message,) = await peer.read("ticks")

    assert reply.code == ResponseCode.SUCCESS, reply.remark
    assert message.body == b"later"
    assert message.properties["own"] == "kept"
    assert message.properties["DELAY"] == "1"
    assert message.properties["REAL_TOPIC"] == "ticks"


async def test_pulls_of_a_group_that_may_not_read_a_topic_are_refused(peer: Peer) -> None:
    await peer.make_topic("T")
    await peer.send("T", b"body")

    await peer.ask(ForbidReading(group="g", topic="T", readable=False))
    refused = await peer.pull("T", 0)
    of_another_group = await peer.pull("T", 0, group="other")
    await peer.ask(ForbidReading(group="g", topic="T", readable=True))
    allowed = await peer.pull("T", 0)

    assert refused.code == ResponseCode.NO_PERMISSION
    assert refused.fields["forbiddenType"] == "5"
    assert refused.remark == "the group 'g' may not read the topic 'T'"
    assert of_another_group.code == allowed.code == ResponseCode.SUCCESS
