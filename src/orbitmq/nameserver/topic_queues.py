"""Which brokers have queues of each topic, as they reported or admins changed.

    queues        topic → broker name → queues, for topics of masters
    mappings      topic → broker name → mapping, for static topics

An entry of either counts as a route; a mapping also counts as one for each of its queues.

Threads: the event loop only; no call blocks.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from orbitmq.errors import RegistrationRefusedError
from orbitmq.model.routes import QueueRoute
from orbitmq.model.topics import Permission, TopicConfig

log = logging.getLogger(__name__)

_READ_WRITE: Final = int(Permission.READ | Permission.WRITE)


class TopicQueues:
    """The tables; anyone may read them, only these methods change them."""

    def __init__(self, *, topics_max: int, routes_max: int) -> None:
        self._topics_max = topics_max
        self._routes_max = routes_max
        self.queues: dict[str, dict[str, QueueRoute]] = {}
        self.mappings: dict[str, dict[str, dict[str, Any]]] = {}
        self.route_count = 0

    def check_room(
        self,
        broker_name: str,
        topics: Iterable[str],
        mappings: Mapping[str, dict[str, Any]] | None = None,
    ) -> None:
        """Raise RegistrationRefusedError if a broker's topics are too many."""
        mappings = mappings or {}
        new_topics = sum(topic not in self.queues for topic in mappings)
        new_routes = sum(map(_mapping_routes, mappings.values()))
        for topic in topics:
            owners = self.queues.get(topic)
            new_topics += owners is None
            new_routes += owners is None or broker_name not in owners
        if len(self.queues) + new_topics > self._topics_max:
            raise RegistrationRefusedError(
                f"{new_topics} new topics would exceed the limit of {self._topics_max}",
                hint="raise topicsMax",
            )
        replaced = sum(
            _mapping_routes(self.mappings[topic][broker_name])
            for topic in mappings
            if broker_name in self.mappings.get(topic, ())
        )
        if self.route_count + new_routes - replaced > self._routes_max:
            raise RegistrationRefusedError(
                f"{new_routes - replaced} new routes of topics to {broker_name!r} would exceed the "
                f"limit of {self._routes_max}, of which {self.route_count} are there",
                hint="raise routesMax",
            )

    def update(
        self,
        broker_name: str,
        topics: Mapping[str, TopicConfig],
        mappings: Mapping[str, dict[str, Any]],
        *,
        read_only: bool,
        missing_only: bool,
        delete_missing: bool,
    ) -> None:
        """Apply what a broker reported of its topics."""
        if delete_missing and not mappings:
            for topic in self._topics_of(broker_name).keys() - topics.keys():
                self.drop(topic, broker_name)
                log.info("topic removed topic=%s broker=%s", topic, broker_name)
        for topic, config in topics.items():
            if missing_only and broker_name in self.queues.get(topic, {}):
                continue
            permission = _without_write(config.permission) if read_only else config.permission
            self._put(topic, broker_name, config, permission)
        for topic, mapping in mappings.items():
            owners = self.mappings.setdefault(topic, {})
            self.route_count += _mapping_routes(mapping)
            if broker_name in owners:
                self.route_count -= _mapping_routes(owners[broker_name])
            owners[broker_name] = mapping

    def add(self, topic: str, queues: Iterable[QueueRoute]) -> None:
        """Add queues to a topic."""
        by_broker = {queue.broker_name: queue for queue in queues}
        for name in by_broker:
            self.check_room(name, [topic])
        kept = self.queues.setdefault(topic, {})
        self.route_count += len(by_broker.keys() - kept.keys())
        kept.update(by_broker)

    def drop(self, topic: str, broker_name: str) -> None:
        """Remove a broker's queues of a topic."""
        if broker_name in self.queues.get(topic, ()):
            self.route_count -= 1
        if broker_name in self.mappings.get(topic, ()):
            self.route_count -= _mapping_routes(self.mappings[topic][broker_name])
        for table in (self.queues, self.mappings):
            by_broker: dict[str, Any] = table.get(topic, {})
            by_broker.pop(broker_name, None)
            if not by_broker:
                table.pop(topic, None)

    def drop_all(self, broker_name: str) -> dict[str, QueueRoute]:
        """Remove a broker's queues of all topics; returns them by topic."""
        dropped = self._topics_of(broker_name)
        mapped = [topic for topic, owners in self.mappings.items() if broker_name in owners]
        for topic in {*dropped, *mapped}:
            self.drop(topic, broker_name)
        return dropped

    def forbid_writing(self, broker_name: str) -> int:
        """Stop sends to a broker; returns how many topics it has."""
        return self._change_permissions(broker_name, _without_write)

    def allow_writing(self, broker_name: str) -> int:
        """Allow sends to a broker again; returns how many topics it has."""
        return self._change_permissions(broker_name, lambda _: _READ_WRITE)

    def _topics_of(self, broker_name: str) -> dict[str, QueueRoute]:
        return {
            topic: queues[broker_name]
            for topic, queues in self.queues.items()
            if broker_name in queues
        }

    def _put(self, topic: str, broker_name: str, config: TopicConfig, permission: int) -> None:
        queues = self.queues.setdefault(topic, {})
        new = QueueRoute(
            broker_name=broker_name,
            permission=permission,
            read_queues=config.read_queues,
            write_queues=config.write_queues,
            unit_flag=config.unit_flag,
        )
        old = queues.get(broker_name)
        if old != new:
            queues[broker_name] = new
            self.route_count += old is None
            if old is not None:
                log.debug("topic changed topic=%s old=%s new=%s", topic, old, new)

    def _change_permissions(self, broker_name: str, change: Callable[[int], int]) -> int:
        changed = self._topics_of(broker_name)
        for topic, queue in changed.items():
            self.queues[topic][broker_name] = msgspec.structs.replace(
                queue, permission=change(queue.permission)
            )
        return len(changed)


def _mapping_routes(mapping: dict[str, Any]) -> int:
    """How many routes a mapping counts as."""
    return 1 + len(mapping.get("currIdMap", ()))


def _without_write(permission: int) -> int:
    return permission & ~int(Permission.WRITE)
