"""One consumer group, as its members describe it in their heartbeats.

As in RocketMQ, the latest heartbeat sets the consume type and topics of the whole group; a topic's
subscription is replaced only by one with a larger version. Members that disagree are marked. If the
broker rejects such members, they are excluded: they are not listed, and their heartbeats do not
change the group.

Threads: the event loop's.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from orbitmq.broker.groups.consistency import (
    Subscribed,
    find_norm,
    normalise,
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
# What a subscription takes in memory beside its texts, and each of its tags.
_SUBSCRIPTION_BYTES: Final = 600
_TAG_BYTES: Final = 80


@dataclass(slots=True, eq=False)
class ConnectedClient:
    """A connection, as its heartbeats describe it, and the groups it is in."""

    connection: Connection
    client_id: str
    language: str
    version: int
    # By group: when a heartbeat last named it.
    produces_ms: dict[str, float] = field(default_factory=dict)
    consumes_ms: dict[str, float] = field(default_factory=dict)
    # By consumer group: what its subscriptions take in memory.
    held_bytes: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Member:
    """A client in a consumer group."""

    client: ConnectedClient
    subscriptions: list[Subscription] | None = None  # None until a heartbeat has them
    subscribed: Subscribed | None = None
    differs: bool = False
    is_excluded: bool = False
    # Whether it was refused a lock, and has not been told since that one was released.
    waits_for_lock: bool = False


class ConsumingGroup:
    """The members of a group, and the settings they share."""

    def __init__(self, name: str, *, reject_differing: bool) -> None:
        self.name = name
        self.consume_type: ConsumeType = PUSH
        self.message_model: MessageModel = CLUSTERING
        self.consume_from: ConsumeFrom = FROM_LAST_OFFSET
        self.subscriptions: dict[str, Subscription] = {}
        # What these take in memory: they may be of members that have left, or have others now.
        self.subscriptions_bytes = 0
        self.members: dict[Connection, Member] = {}
        self.norm: Subscribed | None = None
        # From the last heartbeat of a client that omits unchanged subscriptions.
        self.fingerprint: int | None = None
        self._reject_differing = reject_differing

    @property
    def is_broadcasting(self) -> bool:
        """Whether each member gets all messages, so that members need not know each other."""
        return self.message_model == BROADCASTING

    def client_ids(self) -> list[str]:
        """The members that share the queues; each id once, even while a client reconnects."""
        return list(
            dict.fromkeys(
                member.client.client_id
                for member in self.members.values()
                if not member.is_excluded
            )
        )

    def heartbeat(
        self, client: ConnectedClient, reported: ConsumerGroup, *, with_subscriptions: bool
    ) -> bool:
        """Apply a heartbeat; returns whether the members must be notified."""
        member = self.members.get(client.connection)
        changed = member is None
        if member is None:
            member = self.members[client.connection] = Member(client)
            log.info("consumer joined group=%s client=%s", self.name, client.client_id)
        if with_subscriptions and reported.subscriptions != member.subscriptions:
            member.subscriptions = reported.subscriptions
            member.subscribed = normalise(self.name, reported.subscriptions)
            changed |= self._compare_members()
        if not member.is_excluded:
            self.consume_type = reported.consume_type
            self.message_model = reported.message_model
            self.consume_from = reported.consume_from
            if with_subscriptions:
                changed |= self._apply_subscriptions(reported.subscriptions)
        return changed

    def growth(self, reported: list[Subscription]) -> int:
        """How many bytes the subscriptions that a heartbeat adds or replaces take in addition."""
        # By topic: a heartbeat may name one twice.
        newer: dict[str, Subscription] = {}
        for each in reported:
            present = newer.get(each.topic)
            if self._is_newer(each) and (present is None or each.version > present.version):
                newer[each.topic] = each
        replaced = (self.subscriptions[topic] for topic in newer.keys() & self.subscriptions.keys())
        added_bytes = sum(map(subscription_bytes, newer.values()))
        return added_bytes - sum(map(subscription_bytes, replaced))

    def _is_newer(self, reported: Subscription) -> bool:
        known = self.subscriptions.get(reported.topic)
        return known is None or reported.version > known.version

    def leave(self, connection: Connection) -> bool:
        """Remove a member; returns whether it was one."""
        member = self.members.pop(connection, None)
        if member is None:
            return False
        log.info("consumer left group=%s client=%s", self.name, member.client.client_id)
        self._compare_members()
        return True

    def note_lock_wait(self, connection: Connection) -> None:
        """Record that a member was refused a lock."""
        member = self.members.get(connection)
        if member is not None:
            member.waits_for_lock = True

    def take_lock_waiters(self) -> tuple[Connection, ...]:
        """Return the members that wait for a lock; they wait no longer until refused again."""
        waiting = [member for member in self.members.values() if member.waits_for_lock]
        for member in waiting:
            member.waits_for_lock = False
        return tuple(member.client.connection for member in waiting)

    def _compare_members(self) -> bool:
        """Mark members that differ from the norm; returns whether the member list changed."""
        before = self.norm
        self.norm = find_norm(
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
            changed |= member.is_excluded != (differs and self._reject_differing)
            member.is_excluded = differs and self._reject_differing
        is_new = self.norm is not None and (before is None or before.filters != self.norm.filters)
        if is_new and self._reject_differing:
            changed |= self._apply_norm()
        return changed

    def check_not_excluded(self, connection: Connection) -> None:
        """Raise SubscriptionConflictError for an excluded member."""
        member = self.members.get(connection)
        if member is not None and member.is_excluded:
            raise SubscriptionConflictError(
                f"client {member.client.client_id!r} subscribes to [{member.subscribed}], "
                f"but its group {self.name!r} subscribes to [{self.norm}]",
                hint="all members of a group must have the same subscriptions; "
                "use a new group for the new subscription, or stop the old members first",
            )

    def _apply_norm(self) -> bool:
        """Replace the group's subscriptions with the norm; returns whether topics changed."""
        owner = next(member for member in self.members.values() if member.subscribed is self.norm)
        old = self.subscriptions
        self.subscriptions = {each.topic: each for each in owner.subscriptions or ()}
        self.subscriptions_bytes = sum(map(subscription_bytes, self.subscriptions.values()))
        return old.keys() != self.subscriptions.keys()

    def _apply_subscriptions(self, reported: list[Subscription]) -> bool:
        """Apply the topics of a heartbeat to the group; returns whether topics changed."""
        topics = {each.topic for each in reported}
        removed = self.subscriptions.keys() - topics
        added = topics - self.subscriptions.keys()
        self.subscriptions_bytes += self.growth(reported)
        for topic in removed:
            self.subscriptions_bytes -= subscription_bytes(self.subscriptions.pop(topic))
        for each in reported:
            if self._is_newer(each):
                self.subscriptions[each.topic] = each
        if removed or added:
            log.info(
                "topics of group changed group=%s added=%s removed=%s",
                self.name, _abbreviated(added), _abbreviated(removed),
            )  # fmt: skip
        return bool(removed or added)


def subscription_bytes(subscription: Subscription) -> int:
    """What a subscription takes in memory."""
    return (
        _SUBSCRIPTION_BYTES
        + len(subscription.topic)
        # Kept as it was sent, and as it is compared.
        + 4 * len(subscription.expression)
        + sum(_TAG_BYTES + len(tag) for tag in subscription.tags)
        + _TAG_BYTES * len(subscription.tag_codes)
    )


def _abbreviated(topics: set[str]) -> str:
    """List topics for the log, shortened: a client may name thousands."""
    names = [topic[:_NAME_SHOWN_MAX] for topic in sorted(topics)[:_NAMES_SHOWN_MAX]]
    others = len(topics) - len(names)
    return f"{names} and {others} more" if others else str(names)
