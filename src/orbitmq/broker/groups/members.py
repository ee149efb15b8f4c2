"""Producers and consumers of a broker, known by their heartbeats.

A client is identified by its connection. It leaves a group when the connection is lost, when it
unregisters, or when its heartbeats have not named the group for two minutes. Changes are returned,
so that the caller can notify the members of the groups.

Threads: the event loop's.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from orbitmq.broker.groups.consuming_group import (
    ConnectedClient,
    ConsumingGroup,
    subscription_bytes,
)
from orbitmq.errors import (
    GroupRefusedError,
    HeartbeatRefusedError,
    SubscriptionConflictError,
    SubscriptionMissingError,
    SubscriptionOutdatedError,
)
from orbitmq.model.subscriptions import Subscription

if TYPE_CHECKING:
    from orbitmq.clock import Clock
    from orbitmq.protocol.requests.clients import ConsumerGroup, HeartbeatBody
    from orbitmq.transport.connection import Connection

log = logging.getLogger(__name__)

_NAME_LENGTH_MAX: Final = 255
CLIENT_ID_LENGTH_MAX: Final = 1000
GROUPS_PER_CLIENT_MAX: Final = 1000
SUBSCRIPTIONS_PER_GROUP_MAX: Final = 10_000
# What a client in a group takes in memory beside its subscriptions.
_MEMBERSHIP_BYTES: Final = 600


@dataclass(frozen=True, slots=True)
class GroupChange:
    """A consumer group whose members or topics changed."""

    group: str
    # Members to notify; none for a broadcasting group, whose members share nothing.
    notify: tuple[Connection, ...]


@dataclass(slots=True)
class Outcome:
    """The result of a heartbeat."""

    changes: list[GroupChange] = field(default_factory=list)
    # Asks a client that omits unchanged subscriptions to send them again.
    subscriptions_changed: bool = True
    # Sent to the client instead of a reply; the heartbeat is applied all the same.
    refusal: SubscriptionConflictError | None = None


@dataclass(slots=True)
class Departure:
    """Clients that left, and what they left."""

    changes: list[GroupChange] = field(default_factory=list)
    left: list[tuple[str, str]] = field(default_factory=list)  # group and client id
    # Connections that no longer send heartbeats, to be closed.
    silent: list[Connection] = field(default_factory=list)


class Members:
    """All clients, by connection and by group."""

    def __init__(
        self,
        *,
        clock: Clock,
        reject_differing: bool = False,
        silence_ms: float = 120_000,
        groups_max: int = GROUPS_PER_CLIENT_MAX,
        subscriptions_max: int = SUBSCRIPTIONS_PER_GROUP_MAX,
        bytes_max: int = 512 * 1024 * 1024,
    ) -> None:
        self._clock = clock
        self._reject_differing = reject_differing
        self._silence_ms = silence_ms
        self._groups_max = groups_max
        self._subscriptions_max = subscriptions_max
        self._bytes_max = bytes_max
        # What all clients together take in memory, about.
        self._held_bytes = 0
        self._clients: dict[Connection, ConnectedClient] = {}
        # By client id, then by connection, the one opened last at the end.
        self._by_id: dict[str, dict[Connection, ConnectedClient]] = {}
        self._producers: dict[str, dict[Connection, ConnectedClient]] = {}
        self._groups: dict[str, ConsumingGroup] = {}

    # --- queries ------------------------------------------------------------------------------

    @property
    def clients(self) -> Mapping[Connection, ConnectedClient]:
        """All clients by their connection."""
        return self._clients

    @property
    def producers(self) -> Mapping[str, Mapping[Connection, ConnectedClient]]:
        """Producers by group."""
        return self._producers

    @property
    def groups(self) -> Mapping[str, ConsumingGroup]:
        """Consumer groups that have members, by name."""
        return self._groups

    @property
    def differing_count(self) -> int:
        """Number of members whose subscriptions differ from those of their group."""
        return sum(
            member.differs for group in self._groups.values() for member in group.members.values()
        )

    def client_ids(self, group: str) -> list[str]:
        """The members that share the queues of a group."""
        found = self._groups.get(group)
        return found.client_ids() if found else []

    def client_id(self, connection: Connection, group: str) -> str | None:
        """The client id of a connection in a group; None if it is not a member."""
        found = self._groups.get(group)
        member = found.members.get(connection) if found else None
        return member.client.client_id if member else None

    def find_consumer(self, group: str, client_id: str) -> ConnectedClient | None:
        """A member of a group, by its client id."""
        found = self._groups.get(group)
        for member in found.members.values() if found else ():
            if member.client.client_id == client_id:
                return member.client
        return None

    def find_client(self, client_id: str) -> ConnectedClient | None:
        """A client by its id; of several connections, the one that was opened last."""
        connected = self._by_id.get(client_id)
        return next(reversed(connected.values())) if connected else None

    def take_lock_waiters(self, group: str) -> GroupChange:
        """The members of a group to notify that a queue was unlocked: those that wait for one."""
        found = self._groups.get(group)
        return GroupChange(group, found.take_lock_waiters() if found else ())

    def groups_of_topic(self, topic: str) -> list[str]:
        """The groups whose members subscribe to a topic."""
        return [name for name, group in self._groups.items() if topic in group.subscriptions]

    def subscribes(self, group: str, topic: str) -> bool:
        """Whether members of a group subscribe to a topic."""
        found = self._groups.get(group)
        return found is not None and topic in found.subscriptions

    def check_pull(self, connection: Connection, group: str) -> None:
        """Raise SubscriptionConflictError for a member that is excluded from its group."""
        found = self._groups.get(group)
        if found is not None:
            found.check_not_excluded(connection)

    def subscription_for_pull(
        self,
        connection: Connection,
        group: str,
        topic: str,
        *,
        version: int,
        allows_broadcast: bool = True,
    ) -> Subscription:
        """The subscription of a group to a topic, at least of the pull's version."""
        found = self._groups.get(group)
        if found is None:
            raise SubscriptionMissingError(
                f"no consumer of group {group!r} has sent a heartbeat",
                hint="send one before the first pull",
            )
        found.check_not_excluded(connection)
        if found.is_broadcasting and not allows_broadcast:
            raise GroupRefusedError(
                f"group {group!r} may not consume by broadcast", hint="consume by clustering"
            )
        subscription = found.subscriptions.get(topic)
        if subscription is None:
            raise SubscriptionMissingError(
                f"group {group!r} does not subscribe to topic {topic!r}",
                hint="all members of a group must subscribe to the same topics",
            )
        if subscription.version < version:
            raise SubscriptionOutdatedError(
                f"the broker's subscription of group {group!r} to topic {topic!r} has version "
                f"{subscription.version}, the pull needs {version}",
                hint="send a heartbeat with the new subscription first",
            )
        return subscription

    # --- heartbeats ---------------------------------------------------------------------------

    def heartbeat(
        self, connection: Connection, body: HeartbeatBody, *, language: str, version: int
    ) -> Outcome:
        """Apply a heartbeat."""
        self.check(connection, body)
        client = self._clients.get(connection)
        outcome = Outcome(subscriptions_changed=not body.fingerprint)
        if connection.closed:
            # It was closed while its groups were created; nothing would ever remove it.
            return outcome
        now_ms = self._clock.monotonic_ms()
        renamed = client is not None and client.client_id != body.client_id
        if client is None:
            client = self._clients[connection] = ConnectedClient(
                connection, body.client_id, language, version
            )
        elif renamed:
            log.warning(
                "connection changed its client id peer=%s from=%s to=%s",
                connection.address, client.client_id, body.client_id,
            )  # fmt: skip
            self._forget_id(client)
        client.client_id, client.language, client.version = body.client_id, language, version
        self._by_id.setdefault(client.client_id, {})[connection] = client
        for produced in body.producers:
            if produced.group not in client.produces_ms:
                self._held_bytes += _MEMBERSHIP_BYTES
            client.produces_ms[produced.group] = now_ms
            self._producers.setdefault(produced.group, {})[connection] = client
        for reported in body.consumers:
            client.consumes_ms[reported.group] = now_ms
            self._held_bytes += _growth(client, reported)
            client.held_bytes[reported.group] = _bytes_of(client, reported)
            self._consumer_heartbeat(client, reported, body, outcome, renamed=renamed)
        self._forget_if_idle(client)
        return outcome

    def _consumer_heartbeat(
        self,
        client: ConnectedClient,
        reported: ConsumerGroup,
        body: HeartbeatBody,
        outcome: Outcome,
        *,
        renamed: bool,
    ) -> None:
        group = self._groups.get(reported.group)
        if group is None:
            group = self._groups[reported.group] = ConsumingGroup(
                reported.group,
                reject_differing=self._reject_differing,
            )
        with_subscriptions = not (body.fingerprint and body.without_subscriptions)
        before_bytes = group.subscriptions_bytes
        if group.heartbeat(client, reported, with_subscriptions=with_subscriptions) or renamed:
            outcome.changes.append(_change(group))
        self._held_bytes += group.subscriptions_bytes - before_bytes
        if body.fingerprint:
            is_known = group.members[client.connection].subscriptions is not None
            if not is_known or group.fingerprint not in (None, body.fingerprint):
                outcome.subscriptions_changed = True
        group.fingerprint = body.fingerprint
        try:
            group.check_not_excluded(client.connection)
        except SubscriptionConflictError as error:
            outcome.refusal = error

    def check(self, connection: Connection, body: HeartbeatBody) -> None:
        """Raise HeartbeatRefusedError for a heartbeat that exceeds a limit."""
        client = self._clients.get(connection)
        if not body.client_id.strip() or len(body.client_id) > CLIENT_ID_LENGTH_MAX:
            raise HeartbeatRefusedError(
                f"{body.client_id[:60]!r} is not a valid client id",
                hint=f"it has 1 to {CLIENT_ID_LENGTH_MAX} characters",
            )
        produces = {named.group for named in body.producers}
        consumes = {named.group for named in body.consumers}
        for group in produces | consumes:
            if not group or len(group) > _NAME_LENGTH_MAX:
                raise HeartbeatRefusedError(f"{group[:60]!r} is not a valid group name")
        if client is not None:
            produces |= client.produces_ms.keys()
            consumes |= client.consumes_ms.keys()
        if len(produces) + len(consumes) > self._groups_max:
            raise HeartbeatRefusedError(
                f"client {body.client_id!r} is in {len(produces) + len(consumes)} groups",
                hint=f"a client may be in at most {self._groups_max}",
            )
        for reported in body.consumers:
            if len(reported.subscriptions) > self._subscriptions_max:
                raise HeartbeatRefusedError(
                    f"group {reported.group!r} subscribes to {len(reported.subscriptions)} topics",
                    hint=f"at most {self._subscriptions_max} are allowed",
                )

        added = len(produces - client.produces_ms.keys() if client else produces)
        growth = added * _MEMBERSHIP_BYTES
        growth += sum(
            _growth(client, reported) + self._group_growth(reported) for reported in body.consumers
        )
        if growth > 0 and self._held_bytes + growth > self._bytes_max:
            raise HeartbeatRefusedError(
                f"the clients of the broker take {self._held_bytes} bytes of memory; client "
                f"{body.client_id!r} would add {growth}",
                hint=f"raise membersBytesMax, which is {self._bytes_max}, or subscribe to less",
            )

    def _group_growth(self, reported: ConsumerGroup) -> int:
        group = self._groups.get(reported.group) or ConsumingGroup(
            reported.group, reject_differing=False
        )
        return max(group.growth(reported.subscriptions), 0)

    # --- leaving ------------------------------------------------------------------------------

    def unregister(
        self,
        connection: Connection,
        *,
        producer_group: str | None = None,
        consumer_group: str | None = None,
    ) -> Departure:
        """Remove a client from groups, as it asks."""
        departure = Departure()
        client = self._clients.get(connection)
        if client is not None:
            if producer_group is not None:
                self._stop_producing(client, producer_group)
            if consumer_group is not None:
                self._stop_consuming(client, consumer_group, departure)
            self._forget_if_idle(client)
        return departure

    def connection_lost(self, connection: Connection) -> Departure:
        """Remove a client from all groups."""
        departure = Departure()
        client = self._clients.get(connection)
        if client is not None:
            self._remove(client, departure, heard_before_ms=float("inf"))
        return departure

    def expire(self) -> Departure:
        """Remove clients from groups that their heartbeats no longer name."""
        departure = Departure()
        heard_before_ms = self._clock.monotonic_ms() - self._silence_ms
        for client in list(self._clients.values()):
            self._remove(client, departure, heard_before_ms=heard_before_ms)
            if client.connection not in self._clients:
                log.warning(
                    "client sends no heartbeats client=%s peer=%s",
                    client.client_id, client.connection.address,
                )  # fmt: skip
                departure.silent.append(client.connection)
        return departure

    def _remove(
        self, client: ConnectedClient, departure: Departure, *, heard_before_ms: float
    ) -> None:
        for group, heard_ms in list(client.produces_ms.items()):
            if heard_ms < heard_before_ms:
                self._stop_producing(client, group)
        for group, heard_ms in list(client.consumes_ms.items()):
            if heard_ms < heard_before_ms:
                self._stop_consuming(client, group, departure)
        self._forget_if_idle(client)

    def _stop_producing(self, client: ConnectedClient, group: str) -> None:
        if client.produces_ms.pop(group, None) is not None:
            self._held_bytes -= _MEMBERSHIP_BYTES
        producers = self._producers.get(group, {})
        if producers.pop(client.connection, None) is not None and not producers:
            del self._producers[group]

    def _stop_consuming(self, client: ConnectedClient, name: str, departure: Departure) -> None:
        client.consumes_ms.pop(name, None)
        self._held_bytes -= client.held_bytes.pop(name, 0)
        group = self._groups.get(name)
        if group is None:
            return
        before_bytes = group.subscriptions_bytes
        if not group.leave(client.connection):
            return
        kept_bytes = group.subscriptions_bytes if group.members else 0
        self._held_bytes += kept_bytes - before_bytes
        departure.left.append((name, client.client_id))
        if group.members:
            departure.changes.append(_change(group))
        else:
            del self._groups[name]

    def _forget_if_idle(self, client: ConnectedClient) -> None:
        if not client.produces_ms and not client.consumes_ms:
            del self._clients[client.connection]
            self._forget_id(client)

    def _forget_id(self, client: ConnectedClient) -> None:
        connected = self._by_id[client.client_id]
        del connected[client.connection]
        if not connected:
            del self._by_id[client.client_id]


def _bytes_of(client: ConnectedClient | None, reported: ConsumerGroup) -> int:
    """What a client takes in a group; one that leaves out its subscriptions keeps the known ones."""
    held = client.held_bytes.get(reported.group, 0) if client is not None else 0
    if held and not reported.subscriptions:
        return held
    return _MEMBERSHIP_BYTES + sum(map(subscription_bytes, reported.subscriptions))


def _growth(client: ConnectedClient | None, reported: ConsumerGroup) -> int:
    held = client.held_bytes.get(reported.group, 0) if client is not None else 0
    return _bytes_of(client, reported) - held


def _change(group: ConsumingGroup) -> GroupChange:
    # Excluded members are notified too: they must give up their queues.
    return GroupChange(group.name, () if group.is_broadcasting else tuple(group.members))
