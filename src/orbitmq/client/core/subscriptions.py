"""Subscriptions: expressions, their versions, and the exact check of tags.

An expression lists tags (`TagA || TagB`, or `*` for all messages) or is an SQL92 condition on the
properties of a message. A filter class names a function of filter servers instead. The broker filters by the hash of a tag, which two tags may share, so a
consumer checks the tag itself.

Threads: a table belongs to the event loop of its consumer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from orbitmq.errors import FilterError, FilterSyntaxError, StateError
from orbitmq.filtering.tags import check_typed, parse_tags
from orbitmq.model.names import check_topic
from orbitmq.model.subscriptions import EVERYTHING, SQL92, TAG, Subscription

if TYPE_CHECKING:
    from orbitmq.clock import Clock

CLASS_LENGTH_MAX: Final = 255


@dataclass(frozen=True, slots=True)
class SqlExpression:
    """A condition on the properties of messages; the broker checks and evaluates it."""

    text: str


Expression = str | SqlExpression


def by_sql(condition: str) -> SqlExpression:
    """Subscribe by a condition such as `price > 3 AND color = 'red'`."""
    if not condition.strip():
        raise FilterSyntaxError(condition, 1, "expected a condition, as in price > 3")
    return SqlExpression(condition)


def subscription_of(topic: str, expression: Expression, *, version_ms: int) -> Subscription:
    """Build a subscription, as heartbeats and pulls carry it."""
    if isinstance(expression, SqlExpression):
        return Subscription(
            topic=topic,
            expression=expression.text,
            expression_type=SQL92,
            version=version_ms,
        )
    _check_type(expression)
    asked = parse_tags(expression)
    if asked.tags is None:
        return Subscription(
            topic=topic, expression=EVERYTHING, expression_type=TAG, version=version_ms
        )
    if not asked.tags:
        raise FilterSyntaxError(expression, 1, "expected tags, as in TagA || TagB, or * for all")
    check_typed(expression, asked)
    return Subscription(
        topic=topic,
        expression=expression,
        expression_type=TAG,
        version=version_ms,
        tags=sorted(asked.tags),
        tag_codes=sorted(asked.hashes),
    )


def class_subscription_of(topic: str, filter_class: object, *, version_ms: int) -> Subscription:
    """Build a subscription that filter servers filter by a class."""
    if not isinstance(filter_class, str) or not 0 < len(filter_class) <= CLASS_LENGTH_MAX:
        raise FilterError(
            f"filter_class is {filter_class!r:.60}",
            hint="it takes the name of a filter, as `orbitmq filterserver filters` lists them",
        )
    # Java's names of nested classes contain a dollar.
    if not all(part.isidentifier() for part in filter_class.replace("$", "_").split(".")):
        raise FilterError(
            f"filter_class is {filter_class!r:.60}, which no class can have as its name",
            hint="write it like org.example.HeavyShipments: words of letters, digits and _, with "
            "dots between them; `orbitmq filterserver filters` lists those installed",
        )
    return Subscription(
        topic=topic,
        class_filter=True,
        expression=filter_class,
        expression_type=TAG,
        version=version_ms,
    )


def tag_check(subscription: Subscription) -> Callable[[str], bool]:
    """Return a function that says whether a tag is really subscribed to."""
    if not subscription.is_by_tag or not subscription.tags:
        return _always
    return frozenset(subscription.tags).__contains__


@dataclass(slots=True, eq=False)
class Subscriptions:
    """The subscriptions of one consumer, one for each topic."""

    _clock: Clock
    _by_topic: dict[str, Subscription] = field(default_factory=dict, init=False)
    _checks: dict[str, Callable[[str], bool]] = field(default_factory=dict, init=False)

    def __contains__(self, topic: str) -> bool:
        return topic in self._by_topic

    def add(
        self, topic: str, expression: Expression = EVERYTHING, *, filter_class: str | None = None
    ) -> Subscription:
        """Subscribe to a topic, or change the expression or the class."""
        check_topic(topic)
        version_ms = self._next_version_ms(topic)
        if filter_class is None:
            added = subscription_of(topic, expression, version_ms=version_ms)
        elif expression != EVERYTHING:
            raise FilterError(
                f"topic {topic!r} cannot be filtered by {expression!r:.60} and by a class",
                hint="give either an expression or filter_class; the class can check tags, too",
            )
        else:
            added = class_subscription_of(topic, filter_class, version_ms=version_ms)
        self._by_topic[topic] = added
        self._checks[topic] = tag_check(added)
        return added

    def remove(self, topic: str) -> None:
        """End the subscription to a topic, if there is one."""
        self._by_topic.pop(topic, None)
        self._checks.pop(topic, None)

    def of(self, topic: str) -> Subscription:
        """Return the subscription to a topic."""
        try:
            return self._by_topic[topic]
        except KeyError:
            raise StateError(
                f"topic {topic!r} is not subscribed to",
                hint=f"subscribed: {', '.join(sorted(self._by_topic)) or 'nothing'}",
            ) from None

    def topics(self) -> Collection[str]:
        """List the subscribed topics."""
        return list(self._by_topic)

    def all(self) -> list[Subscription]:
        """List all subscriptions, for a heartbeat."""
        return list(self._by_topic.values())

    def wants(self, topic: str, tag: str) -> bool:
        """Whether a message with this tag ("" for none) matches; False once unsubscribed."""
        check = self._checks.get(topic)
        return check is not None and check(tag)

    def _next_version_ms(self, topic: str) -> int:
        # Compat: for brokers the largest version is the newest; clocks may be set back.
        present = self._by_topic.get(topic)
        now_ms = self._clock.now_ms()
        return now_ms if present is None else max(now_ms, present.version + 1)


def _check_type(expression: object) -> None:
    if expression is not None and not isinstance(expression, str):
        raise FilterSyntaxError(
            repr(expression), 1, "expected a str, as in TagA || TagB, or by_sql(...)"
        )


def _always(_tag: str) -> bool:
    return True
