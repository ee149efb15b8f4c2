"""Brokers that left without unregistering: since when, and which queues they have.

A broker that unregisters is forgotten, and so is one that has been missing for too long. All others
are remembered until they register again, so that readers can tell half a topic from a whole one.

Nothing here is persistent: a restarted name server learns only of brokers that register with it.

Threads: the event loop only; no call blocks.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from orbitmq.clock import Clock, SystemClock
from orbitmq.model.routes import MissingBroker, QueueRoute

log = logging.getLogger(__name__)

# What a remembered topic takes beside its name: an entry of a dict and a route.
_TOPIC_BYTES: Final = 300


@dataclass(slots=True, kw_only=True)
class _Missing:
    """The missing brokers of one group."""

    cluster: str
    since_ms: int
    lost_at_ms: float
    addresses: dict[int, str] = field(default_factory=dict)
    # Since when each is missing.
    each_since_ms: dict[int, int] = field(default_factory=dict)
    # The queues that nobody of the group serves; None if they did not fit.
    topics: dict[str, QueueRoute] | None = field(default_factory=dict)
    topic_bytes: int = 0


class MissingBrokers:
    """The brokers that left without unregistering, by broker name, the longest missing first."""

    def __init__(
        self,
        *,
        brokers_max: int = 1_000,
        topic_bytes_max: int = 64 * 1024 * 1024,
        missing_ms_max: float = 72 * 3_600_000,
        clock: Clock | None = None,
    ) -> None:
        self._brokers_max = brokers_max
        self._topic_bytes_max = topic_bytes_max
        self._missing_ms_max = missing_ms_max
        self._clock = clock or SystemClock()
        self._by_name: dict[str, _Missing] = {}
        self._topic_bytes = 0

    # --- what is missing ------------------------------------------------------------------------

    def all(self) -> list[MissingBroker]:
        """List all missing brokers, by name."""
        return [_shown(name, self._by_name[name]) for name in sorted(self._by_name)]

    def of_topic(self, topic: str) -> tuple[list[MissingBroker], list[QueueRoute]]:
        """List the missing brokers that have, or may have, a topic, and their queues."""
        brokers: list[MissingBroker] = []
        queues: list[QueueRoute] = []
        for name in sorted(self._by_name):
            missing = self._by_name[name]
            if missing.topics is None:
                brokers.append(_shown(name, missing))
            elif (route := missing.topics.get(topic)) is not None:
                brokers.append(_shown(name, missing))
                queues.append(route)
        return brokers, queues

    def topics(self) -> Iterator[str]:
        """Yield every topic of missing brokers; some may come twice."""
        for missing in self._by_name.values():
            yield from missing.topics or ()

    # --- changes ----------------------------------------------------------------------------------

    def add(self, name: str, cluster: str, broker_id: int, address: str) -> None:
        """Remember that a broker left."""
        if self._missing_ms_max <= 0:
            return
        missing = self._by_name.get(name)
        if missing is None:
            self._make_room()
            missing = self._by_name[name] = _Missing(
                cluster=cluster,
                since_ms=self._clock.now_ms(),
                lost_at_ms=self._clock.monotonic_ms(),
            )
        missing.addresses[broker_id] = address
        missing.each_since_ms[broker_id] = self._clock.now_ms()

    def keep_topics(self, name: str, topics: Mapping[str, QueueRoute]) -> None:
        """Remember the queues of a group whose last broker left, if one of it is missing."""
        missing = self._by_name.get(name)
        if missing is None or not topics:
            return
        self._drop_topics(missing)
        needed = sum(len(topic) + _TOPIC_BYTES for topic in topics)
        if self._topic_bytes + needed > self._topic_bytes_max:
            log.warning(
                "topics of a missing broker not remembered name=%s topics=%d bytes=%d; every topic "
                "is reported as incomplete until it is back or forgotten: raise "
                "missingBrokersBytesMax",
                name,
                len(topics),
                needed,
            )
            missing.topics = None
            return
        missing.topics = dict(topics)
        missing.topic_bytes = needed
        self._topic_bytes += needed

    def on_register(self, name: str, broker_id: int, address: str, *, defines_topics: bool) -> bool:
        """Forget what a registering broker, maybe at a new address, brings back.

        Returns whether anything changed. A slave does not report topics, so those of its master
        stay missing.
        """
        missing = self._by_name.get(name)
        if missing is None:
            return False
        left = _without(missing.addresses, address)
        left.pop(broker_id, None)
        changed = left != missing.addresses or (defines_topics and missing.topics != {})
        missing.addresses = left
        if defines_topics:
            self._drop_topics(missing)
        if not left and missing.topics == {}:
            self._forget(name)
        return changed

    def forget(self, name: str, address: str) -> bool:
        """Forget a broker that unregistered; returns whether it was missing."""
        missing = self._by_name.get(name)
        if missing is None:
            return False
        left = _without(missing.addresses, address)
        if not left:
            self._forget(name)
            return True
        was_missing = left != missing.addresses
        missing.addresses = left
        return was_missing

    def forget_topic(self, topic: str, cluster: str | None) -> None:
        """Forget the queues of a topic that was deleted, in one cluster or in all."""
        for missing in self._by_name.values():
            if missing.topics and (not cluster or missing.cluster == cluster):
                route = missing.topics.pop(topic, None)
                if route is not None:
                    missing.topic_bytes -= len(topic) + _TOPIC_BYTES
                    self._topic_bytes -= len(topic) + _TOPIC_BYTES

    def forget_expired(self) -> bool:
        """Forget brokers that have been missing for too long; returns whether there were any."""
        oldest_ms = self._clock.monotonic_ms() - self._missing_ms_max
        expired = [name for name, one in self._by_name.items() if one.lost_at_ms < oldest_ms]
        for name in expired:
            log.warning("missing broker forgotten name=%s reason=missing for too long", name)
            self._forget(name)
        return bool(expired)

    # --- internals --------------------------------------------------------------------------------

    def _make_room(self) -> None:
        while len(self._by_name) >= self._brokers_max:
            oldest = next(iter(self._by_name))
            log.warning("missing broker forgotten name=%s reason=missingBrokersMax", oldest)
            self._forget(oldest)

    def _forget(self, name: str) -> None:
        self._drop_topics(self._by_name.pop(name))

    def _drop_topics(self, missing: _Missing) -> None:
        self._topic_bytes -= missing.topic_bytes
        missing.topic_bytes = 0
        missing.topics = {}


def _shown(name: str, missing: _Missing) -> MissingBroker:
    return MissingBroker(
        name=name,
        cluster=missing.cluster,
        addresses=dict(sorted(missing.addresses.items())),
        since_ms=missing.since_ms,
        each_since_ms={number: missing.each_since_ms[number] for number in missing.addresses},
        is_served=missing.topics == {},
        topics_known=missing.topics is not None,
    )


def _without(addresses: dict[int, str], address: str) -> dict[int, str]:
    return {number: known for number, known in addresses.items() if known != address}
