"""One consumer group as its members describe it by their heartbeats.

As in RocketMQ the last heartbeat counts for the whole group: its kind of consuming, and its
topics; what is known of a topic gives way only to a larger version. Members who disagree are
marked. Where such are to be rejected, they are left out: of the list of members, and of all that
counts for the group.

Threads: the event loop's.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from orbitmq.broker.groups.consistency import (
    Subscribed,
    norm_of,
    what_is_subscribed,
)
from orbitmq.errors import SubscriptionConflictError
from orbitmq.model.subscriptions import (
    BROADCASTING,
    CLUSTERING,
    FROM_LAST_OFFSET,
    PUSH,
    ConsumeFrom,
    ConsumeType,
    MessageModel,
    Subscription,
)

if TYPE_CHECKING:
    from orbitmq.protocol.requests.clients import ConsumerGroup
    from orbitmq.transport.connection import Connection

log = logging.getLogger(__name__)

_NAMES_SHOWN_MAX: Final = 20
_NAME_SHOWN_MAX: Final = 127


@dataclass(slots=True, eq=False)
class ConnectedClient:
    """One connection as its heartbeats describe it, and the groups it is in."""

    connection: Connection
    client_id: str
    language: str
    version: int
    # By group, when it was last named in a heartbeat.
    produces_ms: dict[str, float] = field(default_factory=dict)
    consumes_ms: dict[str, float] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Member:
    """A client in a consumer group."""

    client: ConnectedClient
    subscriptions: list[Subscription] | None = None  # unknown until a heartbeat tells
    subscribed: Subscribed | None = None
    differs: bool = False
    is_left_out: bool = False


class ConsumingGroup:
    """The members of a group, and what counts for all of them."""

    def __init__(self, name: str, *, reject_differing: bool) -> None:
        self.name = name
        self.consume_type: ConsumeType = PUSH
        self.message_model: MessageModel = CLUSTERING
        self.consume_from: ConsumeFrom = FROM_LAST_OFFSET
        self.subscriptions: dict[str, Subscription] = {}
        self.members: dict[Connection, Member] = {}
        self.norm: Subscribed | None = None
        # Of the last heartbeat, from clients that leave out what has not changed.
        self.fingerprint: int | None = None
        self._reject_differing = reject_differing

    @property
    def is_broadcasting(self) -> bool:
        """Whether each member gets all messages, so that none needs to know of the others."""
        return self.message_model == BROADCASTING

    def client_ids(self) -> list[str]:
        """Who shares the queues: each id once, though a client may just be reconnecting."""
        return list(
            dict.fromkeys(
                member.client.client_id
                for member in self.members.values()
                if not member.is_left_out
            )
        )

    def hear(
        self, client: ConnectedClient, said: ConsumerGroup, *, with_subscriptions: bool
    ) -> bool:
        """Take in what a heartbeat says of this group; tells whether others must know."""
        member = self.members.get(client.connection)
        changed = member is None
        if member is None:
            member = self.members[client.connection] = Member(client)
            log.info("consumer joined group=%s client=%s", self.name, client.client_id)
        if with_subscriptions and said.subscriptions != member.subscriptions:
            member.subscriptions = said.subscriptions
            member.subscribed = what_is_subscribed(self.name, said.subscriptions)
            changed |= self._judge()
        if not member.is_left_out:
            self.consume_type = said.consume_type
            self.message_model = said.message_model
            self.consume_from = said.consume_from
            if with_subscriptions:
                changed |= self._take_subscriptions(said.subscriptions)
        return changed

    def leave(self, connection: Connection) -> bool:
        """Take a member out; tells whether it was one."""
        member = self.members.pop(connection, None)
        if member is None:
            return False
        log.info("consumer left group=%s client=%s", self.name, member.client.client_id)
        self._judge()
        return True

    def _judge(self) -> bool:
        """Compare the members; tells whether some are listed now, or no longer."""
        before = self.norm
        self.norm = norm_of(
            member.subscribed for member in self.members.values() if member.subscribed is not None
        )
        changed = False
        for member in self.members.values():
            subscribed = member.subscribed
            differs = (
                subscribed is not None
                and self.norm is not None
                and subscribed.filters != self.norm.filters
            )
            if differs and not member.differs:
                log.warning(
                    "subscriptions differ group=%s client=%s has=%s group_has=%s",
                    self.name, member.client.client_id, subscribed, self.norm,
                )  # fmt: skip
            member.differs = differs
            changed |= member.is_left_out != (differs and self._reject_differing)
            member.is_left_out = differs and self._reject_differing
        is_new = self.norm is not None and (before is None or before.filters != self.norm.filters)
        if is_new and self._reject_differing:
            changed |= self._take_norm()
        return changed

    def check_not_left_out(self, connection: Connection) -> None:
        """Raise SubscriptionConflictError for a member that is left out."""
        member = self.members.get(connection)
        if member is not None and member.is_left_out:
            raise SubscriptionConflictError(
                f"client {member.client.client_id!r} subscribes to [{member.subscribed}], "
                f"but its group {self.name!r} to [{self.norm}]",
                hint="all members of a group must subscribe to the same; "
                "give the new subscription a group of its own, or stop the old members first",
            )

    def _take_norm(self) -> bool:
        """Let the norm count, whatever counted before."""
        keeper = next(member for member in self.members.values() if member.subscribed is self.norm)
        old = self.subscriptions
        self.subscriptions = {each.topic: each for each in keeper.subscriptions or ()}
        return old.keys() != self.subscriptions.keys()

    def _take_subscriptions(self, said: list[Subscription]) -> bool:
        """Take the topics of a heartbeat for the group's; tells whether some came or went."""
        topics = {each.topic for each in said}
        gone = self.subscriptions.keys() - topics
        come = topics - self.subscriptions.keys()
        for topic in gone:
            del self.subscriptions[topic]
        for each in said:
            known = self.subscriptions.get(each.topic)
            if known is None or each.version > known.version:
                self.subscriptions[each.topic] = each
        if gone or come:
            log.info(
                "topics of group changed group=%s come=%s gone=%s",
                self.name, _shown(come), _shown(gone),
            )  # fmt: skip
        return bool(gone or come)


def _shown(topics: set[str]) -> str:
    """Name topics in the log, not more than a reader takes in: a client may name thousands."""
    names = [topic[:_NAME_SHOWN_MAX] for topic in sorted(topics)[:_NAMES_SHOWN_MAX]]
    left_out = len(topics) - len(names)
    return f"{names} and {left_out} more" if left_out else str(names)
