"""Plans a rebalance: which queues a member gives up, locks and takes.

Each round plans twice: first without locks, to find what to drop and what to lock; then, after
dropping and locking, to find what to add.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from orbitmq.client.core.consuming.allocation import Allocation, sorted_client_ids, sorted_queues
from orbitmq.client.core.consuming.inflight_window import LOCK_TRUST_MS
from orbitmq.model.queues import MessageQueue
from orbitmq.model.subscriptions import BROADCASTING, CLUSTERING, MessageModel

NOTHING: AbstractSet[MessageQueue] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """A consumer as a member of its group."""

    group: str
    client_id: str
    allocation: Allocation
    model: MessageModel = CLUSTERING
    ordered: bool = False
    # How long it consumes a queue in order without a renewal of its lock.
    lock_trust_ms: int = LOCK_TRUST_MS

    @property
    def needs_locks(self) -> bool:
        """Whether a queue may only be taken with its lock."""
        return self.ordered and self.model != BROADCASTING


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupView:
    """What a member knows about topics and other members; topics it could not query are missing."""

    subscribed: Collection[str]
    queues: Mapping[str, Sequence[MessageQueue]]
    client_ids: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """The queues that a member holds; `leaving` are those of them that it is giving up."""

    held: AbstractSet[MessageQueue] = NOTHING
    leaving: AbstractSet[MessageQueue] = NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to do with which queues: drop, then lock, then add."""

    drop: Sequence[MessageQueue]
    lock: Sequence[MessageQueue]
    add: Sequence[MessageQueue]
    wanted: Mapping[str, AbstractSet[MessageQueue]]  # by topic, if known
    balanced: bool  # whether nothing is left to do after this plan


def plan(
    member: Membership,
    view: GroupView,
    holding: Holding,
    *,
    locked: AbstractSet[MessageQueue] = NOTHING,
) -> Plan:
    """Compare the queues that a member should have with those it has."""
    wanted = wanted_queues(member, view)
    topics = set(view.subscribed)
    surplus = {
        queue
        for queue in holding.held
        if queue.topic not in topics or (queue.topic in wanted and queue not in wanted[queue.topic])
    }
    missing = {queue for queues in wanted.values() for queue in queues} - holding.held
    addable = missing & locked if member.needs_locks else missing
    drop = surplus | holding.leaving
    return Plan(
        drop=sorted_queues(drop),
        lock=sorted_queues(missing - locked) if member.needs_locks else [],
        add=sorted_queues(addable),
        wanted=wanted,
        balanced=addable == missing and not holding.leaving and _knows_members(member, view),
    )


def wanted_queues(member: Membership, view: GroupView) -> dict[str, AbstractSet[MessageQueue]]:
    """Return the queues that a member should have, by topic; unknown topics are left out."""
    wanted: dict[str, AbstractSet[MessageQueue]] = {}
    for topic in view.subscribed:
        queues = view.queues.get(topic)
        if not queues:
            continue
        if member.model == BROADCASTING:
            wanted[topic] = frozenset(queues)
        elif client_ids := view.client_ids.get(topic):
            chosen = member.allocation(
                member.group,
                member.client_id,
                sorted_queues(queues),
                sorted_client_ids(client_ids),
            )
            # `by_config` returns queues of other topics too.
            wanted[topic] = frozenset(queues) & frozenset(chosen)
    return wanted


def _knows_members(member: Membership, view: GroupView) -> bool:
    """Whether every existing topic has a known list of members that includes this one."""
    return member.model == BROADCASTING or all(
        member.client_id in view.client_ids.get(topic, ())
        for topic in view.subscribed
        if view.queues.get(topic)
    )
