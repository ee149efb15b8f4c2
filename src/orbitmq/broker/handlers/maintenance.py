"""Upkeep of a broker's files, asked for by hand."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from orbitmq.disk import off_loop
from orbitmq.model.names import is_system_topic
from orbitmq.protocol.codes import RequestCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.broker.topics.topic_table import TopicTable
    from orbitmq.protocol.command import Command
    from orbitmq.store.message_store import MessageStore
    from orbitmq.transport.connection import Connection
    from orbitmq.transport.request_loop import Handler

log = logging.getLogger(__name__)


class MaintenanceRequests:
    """Deletes files that nobody needs any more."""

    def __init__(self, *, store: MessageStore, topics: TopicTable) -> None:
        self._store = store
        self._topics = topics

    def by_code(self) -> Mapping[int, Handler]:
        """Give the handler of each request code."""
        return {
            RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: self.delete_expired_queues,
            RequestCode.DELETE_EXPIRED_COMMITLOG: self.delete_expired_logs,
            RequestCode.CLEAN_UNUSED_TOPIC: self.delete_unused_topics,
        }

    def delete_expired_queues(self, _: Connection, request: Command) -> Command:
        """Say that it is done: queue files go together with the log files they point into."""
        return request.reply()

    async def delete_expired_logs(self, connection: Connection, request: Command) -> Command:
        """Delete log files past their time, whatever the hour."""
        deletions = await off_loop(self._store.delete_expired)
        log.info(
            "expired log files deleted by hand count=%d peer=%s", len(deletions), connection.address
        )
        return request.reply()

    async def delete_unused_topics(self, connection: Connection, request: Command) -> Command:
        """Delete the queues of topics that are no more."""
        unused = {
            queue.topic
            for queue in self._store.queues()
            if self._topics.get(queue.topic) is None and not is_system_topic(queue.topic)
        }
        for topic in sorted(unused):
            if self._topics.get(topic) is not None:
                # It was made while others were deleted.
                continue
            await off_loop(self._store.delete_topic, topic)
            log.info("queues of unused topic deleted topic=%s peer=%s", topic, connection.address)
        return request.reply()
