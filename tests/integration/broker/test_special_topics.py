"""Topics with a rule of their own: kept in memory, or closed to a group."""

from __future__ import annotations

from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.requests.groups import ForbidReading
from orbitmq.protocol.requests.topics import UpdateTopic
from tests.integration.broker.conftest import Peer, Site


async def test_a_delayed_message_comes_to_a_topic_in_memory_without_what_delayed_it(
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
    assert "DELAY" not in message.properties


async def test_a_group_that_is_forbidden_a_topic_is_told_so_by_its_pulls(peer: Peer) -> None:
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
