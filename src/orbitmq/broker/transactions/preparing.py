"""Preparing transactions: checks and stores half messages.

Threads: the event loop's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orbitmq.broker.send_rules import waits_for_store
from orbitmq.broker.transactions.half_messages import half_properties, immunity_ms_of
from orbitmq.broker.transactions.recent_halves import hash_of
from orbitmq.errors import MessageError, RequestRefusedError
from orbitmq.model.names import is_retry_topic
from orbitmq.protocol.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.broker.config import BrokerConfig
    from orbitmq.broker.send_rules import Destination
    from orbitmq.broker.storing import Stored, Storing
    from orbitmq.broker.transactions.half_messages import Half
    from orbitmq.broker.transactions.half_queue import HalfQueue
    from orbitmq.broker.transactions.recent_halves import RecentHalves
    from orbitmq.model.topics import TopicConfig
    from orbitmq.store.log.draft import Draft


@dataclass(slots=True, eq=False, kw_only=True)
class Preparing:
    """Stores half messages."""

    config: Callable[[], BrokerConfig]
    halves: HalfQueue
    recent: RecentHalves
    storing: Storing

    def properties_of_half(
        self, properties: Mapping[str, str], topic: TopicConfig, queue_id: int, group: str
    ) -> dict[str, str]:
        """The properties of a half message for a queue; raises if it cannot be one."""
        config = self.config()
        if config.reject_transactions:
            raise RequestRefusedError(
                ResponseCode.NO_PERMISSION,
                f"the broker {config.broker_name} sending transaction message is forbidden",
                hint="set rejectTransactionMessage=false to allow it",
            )
        if topic.is_in_memory:
            raise MessageError(
                f"topic {topic.name!r} is kept in memory, which does not support transactions",
                hint="send it to a topic that is kept on disk, or without a transaction",
            )
        if is_retry_topic(topic.name):
            raise MessageError(
                f"a transaction cannot be for the retry topic {topic.name!r}",
                hint="send it to another topic, or without a transaction",
            )
        return half_properties(properties, topic=topic.name, queue_id=queue_id, group=group)

    def earlier(self, draft: Draft, properties: Mapping[str, str]) -> Half | None:
        """The open half that a draft, with these properties, repeats; None if it is a new one."""
        return self.recent.find(hash_of(properties, draft.body))

    async def put(
        self, draft: Draft, properties: Mapping[str, str], destination: Destination
    ) -> Stored:
        """Store a half message, which its producer commits or rolls back later."""
        receipt = self.halves.prepare(
            draft,
            topic=destination.topic,
            queue_id=destination.queue_id,
            immunity_ms=immunity_ms_of(properties),
        )
        self.recent.add(hash_of(properties, draft.body), receipt.queue_offset)
        return await self.storing.confirm([receipt], wait=waits_for_store(properties))

    async def confirm(self, half: Half, properties: Mapping[str, str]) -> Stored:
        """Wait for the disk with a half that was stored before."""
        receipt = self.halves.receipt_of(half)
        return await self.storing.confirm([receipt], wait=waits_for_store(properties))
