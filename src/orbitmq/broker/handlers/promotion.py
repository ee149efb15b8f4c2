"""Promotion: tells what this broker is in its group, and makes a slave the master."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import msgspec

from orbitmq.broker.replication.config import BrokerRole
from orbitmq.broker.replication.epoch import ChangedRole, Role
from orbitmq.broker.tool_requests import ToolRequests
from orbitmq.disk import off_loop
from orbitmq.errors import RequestRefusedError
from orbitmq.model.routes import MASTER_ID
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.replication import (
    ListQueueEnds,
    PromoteBroker,
    PromoteReply,
    QueueEnds,
    ReadStanding,
    Standing,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.broker.replication.assembly import Replication
    from orbitmq.broker.replication.epoch import EpochFile
    from orbitmq.broker.replication.following import Following
    from orbitmq.clock import Clock
    from orbitmq.protocol.command import Command
    from orbitmq.protocol.requests.registration import RegisterBroker
    from orbitmq.store.message_store import MessageStore
    from orbitmq.transport.connection import Connection
    from orbitmq.transport.request_loop import Handler

# Queues after which a page of ends is over; one topic may have more than that.
ENDS_PER_PAGE: Final = 10_000
# Epochs have 64 bits; none may use them up at once.
EPOCHS_AHEAD_MAX: Final = 1_000_000
_MASTER_ROLES = (BrokerRole.ASYNC_MASTER, BrokerRole.SYNC_MASTER)


@dataclass(slots=True, eq=False, kw_only=True)
class PromotionRequests:
    """Answers brokers of the group and operators."""

    identity: Callable[[], RegisterBroker]
    store: MessageStore
    replication: Replication
    epochs: EpochFile
    # The role in the configuration, which a promotion overrides.
    configured: Role
    # Called with the address of a broker that claims a larger epoch, and this epoch.
    on_claim: Callable[[str, int], None]
    # Starts the broker again, in the role that it has then.
    restart: Callable[[], None]
    clock: Clock
    _promoting: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _listing: ToolRequests = field(
        default_factory=lambda: ToolRequests("for the ends of queues"), init=False
    )

    def by_code(self) -> Mapping[int, Handler]:
        """The handlers by request code."""
        return {
            RequestCode.READ_STANDING: self.read_standing,
            RequestCode.PROMOTE_BROKER: self.promote,
            RequestCode.LIST_QUEUE_ENDS: self.list_queue_ends,
        }

    def read_standing(self, _: Connection, request: Command) -> Command:
        """Return this broker's role, epoch and log."""
        asked = ReadStanding.decode(request.fields)
        if asked.broker_address and asked.broker_name == self.identity().broker_name:
            self.on_claim(asked.broker_address, asked.epoch)
        return request.reply(body=msgspec.json.encode(self.standing()))

    def standing(self) -> Standing:
        """What this broker is."""
        identity, store = self.identity(), self.store
        following = self.replication.following
        return Standing(
            broker_name=identity.broker_name,
            broker_id=identity.broker_id,
            address=identity.broker_address,
            role=self.replication.role,
            is_master=self.replication.is_master,
            epoch=self.epochs.epoch,
            epochs=self.epochs.history,
            log_start=store.log_start,
            log_end=store.log_end,
            flushed=store.flushed,
            visible=store.visible,
            master=following.seen if following is not None else None,
            is_linked=following is not None and following.is_linked,
            failure=following.failure if following is not None else "",
            differs_from=following.differs_from if following is not None else None,
        )

    async def list_queue_ends(self, _: Connection, request: Command) -> Command:
        """Return where the queues of the next topics end: from there on a promotion loses them."""
        asked = ListQueueEnds.decode(request.fields)
        async with self._listing.at_work():
            body = await off_loop(
                self._queue_ends, asked.after, max(min(asked.limit, ENDS_PER_PAGE), 1)
            )
        return request.reply(body=body)

    def _queue_ends(self, after: str, limit: int) -> bytes:
        log_end = self.store.log_end
        in_memory = self.store.memory_topics
        by_topic: dict[str, dict[int, int]] = {}
        for queue in self.store.appended_queues():
            if queue.topic > after and queue.end and queue.topic not in in_memory:
                by_topic.setdefault(queue.topic, {})[queue.queue_id] = queue.end
        page: dict[str, dict[int, int]] = {}
        count = 0
        for topic in sorted(by_topic):
            if count >= limit:
                break
            page[topic] = by_topic[topic]
            count += len(by_topic[topic])
        ends = QueueEnds(log_end=log_end, ends=page, has_more=len(page) < len(by_topic))
        return msgspec.json.encode(ends)

    async def promote(self, _: Connection, request: Command) -> Command:
        """Become the master of the group; the reply says up to where the log is kept."""
        asked = PromoteBroker.decode(request.fields)
        async with self._promoting:
            following = self._slave(asked)
            role = self._new_role(asked, following)
            if not asked.force:
                await self._refuse_if_answering(following)
            end = await self._begin(asked.epoch, role, following.stop)
        return request.reply(PromoteReply(log_end=Long(end), epoch=asked.epoch))

    async def _begin(
        self, epoch: int, role: BrokerRole, stop_following: Callable[[], Awaitable[None]]
    ) -> int:
        try:
            # From here on the log does not grow.
            await stop_following()
            await off_loop(self.store.flush)
            end = self.store.log_end
            await self.epochs.begin(
                epoch,
                end,
                former_id=self.identity().broker_id,
                role=ChangedRole(Role(MASTER_ID, role), self.configured, self.clock.now_ms()),
            )
        finally:
            # As the master, or again as a slave if something failed.
            self.restart()
        return end

    def _slave(self, asked: PromoteBroker) -> Following:
        name = self.identity().broker_name
        if asked.broker_name != name:
            raise _refused(f"this broker is {name!r}, not {asked.broker_name!r}", "")
        following = self.replication.following
        if following is None:
            raise _refused("this broker is a master already", "promote a slave of its group")
        if asked.epoch <= self.epochs.epoch:
            raise _refused(
                f"epoch {asked.epoch} is not larger than epoch {self.epochs.epoch} of this slave",
                "take a larger one",
            )
        if asked.epoch > self.epochs.epoch + EPOCHS_AHEAD_MAX:
            raise _refused(
                f"epoch {asked.epoch} is over {EPOCHS_AHEAD_MAX} above epoch {self.epochs.epoch} of "
                "this slave",
                "each promotion takes the next one: orbitmq broker promote finds it",
            )
        if self.store.copy.is_empty:
            raise _refused(
                "this slave has copied nothing yet, and all messages would be lost",
                "promote a slave that has the log; to begin anew, configure this one as a master",
            )
        return following

    def _new_role(self, asked: PromoteBroker, following: Following) -> BrokerRole:
        text = asked.role or (following.seen.role if following.seen is not None else "")
        if text in _MASTER_ROLES:
            return BrokerRole(text)
        if not text:
            return BrokerRole.ASYNC_MASTER
        raise _refused(f"{text!r} is no role of a master", f"use one of {', '.join(_MASTER_ROLES)}")

    async def _refuse_if_answering(self, following: Following) -> None:
        if await following.master_answers():
            raise _refused(
                f"the master {following.master} answers",
                "stop it first; or force it, and what only that master has is lost",
            )


def _refused(reason: str, hint: str) -> RequestRefusedError:
    return RequestRefusedError(ResponseCode.INVALID_PARAMETER, reason, hint=hint)
