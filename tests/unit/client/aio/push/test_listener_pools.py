"""Which pool a listener gets."""

from __future__ import annotations

from orbitmq.client.aio.push.listener_pools import listener_pool
from orbitmq.client.aio.push.listener_tasks import ListenerTasks
from orbitmq.client.aio.push.listener_threads import ListenerThreads
from orbitmq.client.aio.push.listeners import listener_of
from orbitmq.client.core.consuming.received_message import ReceivedMessage
from tests.unit.client.aio.received import call_of


async def test_plain_listeners_run_in_threads_and_async_ones_in_tasks() -> None:
    async def awaited(_message: ReceivedMessage) -> None:
        """Do nothing."""

    def plain(_message: ReceivedMessage) -> None:
        """Do nothing."""

    made = [
        listener_pool(call_of(listener_of(function, None)), print, concurrency=3, name="billing")
        for function in (plain, awaited)
    ]

    assert [type(pool) for pool in made] == [ListenerThreads, ListenerTasks]
    assert [pool.concurrency for pool in made] == [3, 3]
