"""Maintenance on request."""

from __future__ import annotations

from pathlib import Path

from orbitmq.broker.handlers.maintenance import MaintenanceRequests
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.command import request
from orbitmq.protocol.requests.maintenance import (
    CleanExpiredQueues,
    CleanUnusedTopics,
    DeleteExpiredLogs,
)
from tests.unit.broker.groups.clients import new_connection
from tests.unit.broker.parts import BrokerParts, broker_parts

TOOL = new_connection()


def _handlers(parts: BrokerParts) -> MaintenanceRequests:
    return MaintenanceRequests(store=parts.store, topics=parts.topics, archives=parts.archives)


async def test_queues_of_deleted_topics_are_deleted(tmp_path: Path) -> None:
    async with broker_parts(tmp_path) as parts:
        await parts.make_topic("orders")
        for topic in ("orders", "unknown", "SCHEDULE_TOPIC_XXXX"):
            await parts.put(1, topic=topic)

        reply = await _handlers(parts).delete_unused_topics(TOOL, request(CleanUnusedTopics()))

        assert reply.code == ResponseCode.SUCCESS
        left = {queue.topic for queue in parts.store.queues()}
        assert left == {"orders", "SCHEDULE_TOPIC_XXXX"}


async def test_expired_log_files_are_deleted_at_any_hour(tmp_path: Path) -> None:
    async with broker_parts(tmp_path) as parts:
        await parts.put(400, topic="x" * 100)
    assert len(list((tmp_path / "commitlog").iterdir())) > 1

    async with broker_parts(tmp_path) as parts:
        # Files have the system's time; this clock moves far beyond it.
        await parts.clock.advance(100 * 365 * 86_400_000)
        reply = await _handlers(parts).delete_expired_logs(TOOL, request(DeleteExpiredLogs()))

        assert reply.code == ResponseCode.SUCCESS
        assert parts.store.log_start > 0


async def test_queue_files_need_no_request_of_their_own(tmp_path: Path) -> None:
    async with broker_parts(tmp_path) as parts:
        reply = _handlers(parts).delete_expired_queues(TOOL, request(CleanExpiredQueues()))

        assert reply.code == ResponseCode.SUCCESS
        assert set(_handlers(parts).by_code()) == {306, 316, 329}
