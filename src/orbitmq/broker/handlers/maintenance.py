"""Maintenance requests: delete files on an operator's command."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orbitmq.disk import off_loop
from orbitmq.model.names import is_system_topic
from orbitmq.protocol.codes import RequestCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.broker.archives.archive_table import ArchiveTable
    from orbitmq.broker.topics.topic_table import TopicTable
    from orbitmq.protocol.command import Command
    from orbitmq.store.message_store import MessageStore
    from orbitmq.transport.connection import Connection
    from orbitmq.transport.request_loop import Handler

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False, kw_only=True)
class MaintenanceRequests:
    """Deletes files that are no longer needed."""

    store: MessageStore
    topics: TopicTable
    archives: ArchiveTable

    def by_code(self) -> Mapping[int, Handler]:
        """The handlers by request code."""
        return {
            RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: self.delete_expired_queues,
            RequestCode.DELETE_EXPIRED_COMMITLOG: self.delete_expired_logs,
            RequestCode.CLEAN_UNUSED_TOPIC: self.delete_unused_topics,
        }

    def delete_expired_queues(self, _: Connection, request: Command) -> Command:
        """Do nothing: queue files are deleted together with the log files they point into."""
        return request.reply()

    async def delete_expired_logs(self, connection: Connection, request: Command) -> Command:
        """Delete expired log files now, not only at the configured hour."""
        deletions = await off_loop(self.store.delete_expired)
        log.info(
            "expired log files deleted on request count=%d peer=%s",
            len(deletions),
            connection.address,
        )
        return request.reply()

    async def delete_unused_topics(self, connection: Connection, request: Command) -> Command:
        """Delete the queues of topics that no longer exist."""
        unused = {
            queue.topic
            for queue in await off_loop(self.store.queues)
            if self.topics.get(queue.topic) is None and not is_system_topic(queue.topic)
        }
        for topic in sorted(unused):
            if self.topics.get(topic) is not None:
                # It was created while others were being deleted.
                continue
            await self.archives.end_life(topic)
            await off_loop(self.store.delete_topic, topic)
            await self.archives.note_deletions(self.store.deleted_topics())
            log.info("queues of unused topic deleted topic=%s peer=%s", topic, connection.address)
        return request.reply()
