"""Open transactions, as tools see them and have them checked.

Few requests are at work at a time, and few wait; others are refused. Each reads in slices, and stops
between two of them once nobody waits for its reply.

Threads: the event loop's; records are read off it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Final

from orbitmq.broker.tool_requests import ToolRequests
from orbitmq.clock import settle
from orbitmq.disk import off_loop
from orbitmq.model import property_names
from orbitmq.model.names import HALF_TOPIC
from orbitmq.protocol.requests.transactions import ChecksSent, OpenTransaction, TransactionPage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orbitmq.broker.groups.members import Members
    from orbitmq.broker.transactions.check_back import CheckBack
    from orbitmq.broker.transactions.half_messages import Half
    from orbitmq.broker.transactions.half_queue import HalfQueue
    from orbitmq.record.decode import StoredMessage
    from orbitmq.store.message_store import MessageStore

PAGE_MAX: Final = 1000
# Halves whose records are read at a time; each may be as large as a message.
_SLICE: Final = 16


@dataclass(slots=True, eq=False, kw_only=True)
class OpenTransactions:
    """Lists open transactions, and has producers asked about them."""

    store: MessageStore
    halves: HalfQueue
    check_back: CheckBack
    members: Members
    requests: ToolRequests = field(
        default_factory=lambda: ToolRequests("about open transactions"), init=False
    )

    async def page(
        self, transaction_id: str | None, limit: int, *, check_wanted: Callable[[], None]
    ) -> TransactionPage:
        """Describe open transactions; `check_wanted` raises once nobody waits for the reply."""
        found: list[OpenTransaction] = []
        async with self.requests.at_work():
            check_wanted()
            chosen = await self._chosen(transaction_id, limit)
            for start in range(0, len(chosen), _SLICE):
                check_wanted()
                part = chosen[start : start + _SLICE]
                messages = await off_loop(self._read, part)
                found += [
                    self._described(half, message)
                    for half, message in zip(part, messages, strict=True)
                    if message is not None
                ]
        return TransactionPage(transactions=found, count=len(self.halves))

    async def check(
        self, transaction_id: str | None, limit: int, *, check_wanted: Callable[[], None]
    ) -> ChecksSent:
        """Have producers asked about open transactions, whatever their age.

        `check_wanted` raises once nobody waits for the reply.
        """
        # After a restart it is not known who was asked last; the client is empty then.
        clients: list[str] = []
        without_producer = 0
        async with self.requests.at_work():
            check_wanted()
            for half in await self._chosen(transaction_id, limit):
                check_wanted()
                client = await self.check_back.check_now(half)
                if client is not None:
                    clients.append(client)
                else:
                    without_producer += 1
                await settle(1)
        return ChecksSent(
            clients=sorted(set(filter(None, clients))),
            asked=len(clients),
            without_producer=without_producer,
        )

    async def _chosen(self, transaction_id: str | None, limit: int) -> Sequence[Half]:
        limit = max(1, min(limit, PAGE_MAX))
        if transaction_id is None:
            return list(islice(self.halves.halves.values(), limit))
        messages = await off_loop(self.store.find, HALF_TOPIC, transaction_id, count_max=limit)
        # Copies of one half are found, too.
        halves = {
            half.first_offset: half
            for message in messages
            if (half := self.halves.find(message)) is not None
        }
        return list(halves.values())

    def _read(self, halves: Sequence[Half]) -> list[StoredMessage | None]:
        return [self.check_back.read(half) for half in halves]

    def _described(self, half: Half, message: StoredMessage) -> OpenTransaction:
        properties = message.properties
        group = properties.get(property_names.PRODUCER_GROUP, "")
        queue_id = properties.get(property_names.REAL_QUEUE_ID, "")
        return OpenTransaction(
            transaction_id=properties.get(property_names.UNIQUE_ID, ""),
            group=group,
            topic=properties.get(property_names.REAL_TOPIC, ""),
            queue_id=int(queue_id) if queue_id.isdecimal() else -1,
            keys=properties.get(property_names.KEYS, ""),
            body_bytes=len(message.stored_body),
            since_ms=half.since_ms,
            half_offset=half.offset,
            checks=half.checks,
            asked_client=half.asked_client,
            asked_ms=half.asked_ms,
            producers=len(self.members.producers.get(group, ())),
        )
