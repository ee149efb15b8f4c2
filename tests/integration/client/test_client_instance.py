"""A client instance against a name server and brokers: members, routes, heartbeats."""

from __future__ import annotations

from orbitmq.client.aio.instances import acquire, release
from orbitmq.client.options import ClientOptions
from tests.integration.client.conftest import Cluster


async def test_an_instance_learns_where_a_topic_is(cluster: Cluster, topic: str) -> None:
    await cluster.make_topic(topic, queues=3)
    instance = await acquire(ClientOptions(namesrv=cluster.namesrv, instance_name="one"))

    found = await instance.routes.publishing(topic, timeout_ms=3000)
    reading = await instance.routes.reading(topic)

    assert [queue.queue_id for queue in found.queues] == [0, 1, 2]
    assert reading == list(found.queues)
    assert instance.routes.master_of("broker-a") == cluster.address()
    await release(instance)
