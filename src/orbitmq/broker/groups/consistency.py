"""Whether the members of a group agree in what they subscribe to, and the norm.

RocketMQ takes the subscriptions of whichever member was heard last for those of the whole group,
so that members who disagree lose messages, and nobody is told. Here they are compared: topic,
kind of expression, and expression in its one normal form. Versions, and the group's own retry
topic, which not every client names, do not count.

The norm is what was subscribed to first, by the versions that clients give their subscriptions:
every broker of a cluster finds the same, in whatever order members come to it.
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


@dataclass(frozen=True, slots=True)
class Subscribed:
    """What a member subscribes to, as far as the members of its group must agree."""

    filters: frozenset[tuple[str, str, str]]  # topic, kind of expression, expression
    # Since when it is so: the newest version among its subscriptions.
    since: int

    def __str__(self) -> str:
        shown = "; ".join(
            f"{topic} by {kind} {expression}" for topic, kind, expression in sorted(self.filters)
        )
        return shown if len(shown) <= _SHOWN_MAX else f"{shown[:_SHOWN_MAX]}…"


def what_is_subscribed(group: str, subscriptions: Iterable[Subscription]) -> Subscribed:
    """Bring the subscriptions of a member into the form that is compared."""
    counted = [each for each in subscriptions if each.topic != retry_topic(group)]
    return Subscribed(
        filters=frozenset(map(_normalised, counted)),
        # Who subscribes to nothing is never the norm for those who subscribe to something.
        since=max((each.version for each in counted), default=_NEVER),
    )


def norm_of(members: Iterable[Subscribed]) -> Subscribed | None:
    """Find what the others are measured by; None without members."""
    # Equal versions must not leave the choice to the order in which members came.
    return min(members, key=lambda each: (each.since, sorted(each.filters)), default=None)


def _normalised(subscription: Subscription) -> tuple[str, str, str]:
    """Topic, kind and expression, written in one way whatever the member's spelling."""
    if not subscription.is_by_tag:
        return (
            subscription.topic,
            subscription.expression_type,
            subscription.expression.strip(),
        )
    try:
        expression = parse_tags(subscription.expression).normalised
    except FilterSyntaxError:
        # The pull that uses it will be told; until then it differs from all that can be read.
        expression = subscription.expression
    return subscription.topic, TAG, expression
