"""A client causes no warning in asyncio's debug mode, with warnings as errors."""

from __future__ import annotations

import asyncio
import gc
import logging
import warnings

import pytest

from orbitmq.clock import ManualClock
from tests.integration.client.conftest import Cluster
from tests.integration.client.members import NotingConsumer, NotingProducer, instance_of
from tests.waiting import until


async def test_a_client_runs_without_a_warning(
    cluster: Cluster, topic: str, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    loop = asyncio.get_running_loop()
    loop.set_debug(enabled=True)
    # Slow callbacks are not tested: the brokers of this process use the disk, and the machine may
    # be busy.
    loop.slow_callback_duration = 60
    clock = ManualClock()
    await cluster.make_topic(topic)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            async with instance_of(cluster.namesrv, clock=clock) as instance:
                producer, consumer = NotingProducer(group, [topic]), NotingConsumer(group, [topic])
                await instance.add_producer(producer)
                await instance.add_consumer(consumer)
                queue = (await instance.routes.publishing(topic, timeout_ms=3000)).queues[0]
                await instance.brokers.max_offset(queue)
                await instance.heartbeat_now()
                await clock.advance(60_000)
                await until(lambda consumer=consumer: consumer.persisted >= 10)  # type: ignore[misc]  # bound now
                await instance.remove_consumer(consumer)
                await instance.remove_producer(producer)
            gc.collect()
    loop.set_debug(enabled=False)

    complaints = [
        record.getMessage()
        for record in caplog.records
        if record.name in ("asyncio", "py.warnings") and record.levelno >= logging.WARNING
    ]
    assert complaints == []
