"""Whether the members of a group have the same subscriptions, and the norm.

RocketMQ applies the subscriptions of the latest heartbeat to the whole group, so members who
disagree lose messages without notice. Here they are compared: topic, expression type, and
expression in normal form. Versions are ignored, and so is the group's own retry topic, which not
every client lists.

The norm is the oldest set of subscriptions, by the versions that clients give them. So every broker
of a cluster finds the same norm, in whatever order members join.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from orbitmq.errors import FilterSyntaxError
from orbitmq.filtering.tags import parse_tags
from orbitmq.model.names import retry_topic
from orbitmq.model.subscriptions import TAG, Subscription

_NEVER: Final = 2**63
_SHOWN_MAX: Final = 400
_CLASS: Final = "CLASS"


@dataclass(frozen=True, slots=True)
class Subscribed:
    """The subscriptions of a member, in the form that is compared."""

    filters: frozenset[tuple[str, str, str]]  # topic, expression type, expression
    # The newest version among the subscriptions.
    since: int

    def __str__(self) -> str:
        shown = "; ".join(
            f"{topic} by {kind} {expression}" for topic, kind, expression in sorted(self.filters)
        )
        return shown if len(shown) <= _SHOWN_MAX else f"{shown[:_SHOWN_MAX]}…"


def normalise(group: str, subscriptions: Iterable[Subscription]) -> Subscribed:
    """Convert the subscriptions of a member to the form that is compared."""
    counted = [each for each in subscriptions if each.topic != retry_topic(group)]
    return Subscribed(
        filters=frozenset(map(_normalised, counted)),
        # A member without subscriptions is never the norm for others.
        since=max((each.version for each in counted), default=_NEVER),
    )


def find_norm(members: Iterable[Subscribed]) -> Subscribed | None:
    """Find the subscriptions that the group should have; None without members."""
    # With equal versions the choice must not depend on the order in which members joined.
    return min(members, key=lambda each: (each.since, sorted(each.filters)), default=None)


def _normalised(subscription: Subscription) -> tuple[str, str, str]:
    """Topic, type and expression in normal form."""
    if subscription.class_filter:
        # Its type on the wire is TAG, but it names no tags.
        return subscription.topic, _CLASS, subscription.expression
    if not subscription.is_by_tag:
        return (
            subscription.topic,
            subscription.expression_type,
            subscription.expression.strip(),
        )
    try:
        expression = parse_tags(subscription.expression).normalised
    except FilterSyntaxError:
        # The pull that uses it will be refused; until then it differs from every valid one.
        expression = subscription.expression
    return subscription.topic, TAG, expression
