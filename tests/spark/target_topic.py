"""A topic that a query writes exactly once: as consumers see it, and as brokers keep it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from orbitmq.broker.exactly_once.query_states import QueryState
from orbitmq.model.names import QUERIES_TOPIC, STAGING_TOPIC
from orbitmq.protocol.codes import RequestCode
from orbitmq.record.decode import StoredMessage
from orbitmq.spark.writing.delivery_marks import MARK, DeliveryMark
from orbitmq.store.readonly.readonly_store import ReadOnlyStore
from tests.interop.timeouts import CLIENT_TIMEOUT_S
from tests.spark.topics import Topics
from tests.waiting import wait_until

# The coordinator is the broker whose name sorts first.
COORDINATOR, OTHER = "broker-a", "broker-b"


@dataclass(frozen=True, slots=True)
class HalfCommitted:
    """A batch that one of two brokers has moved, before the other was notified."""

    batch: int
    # Committed rows, and rows visible to consumers, by broker.
    decided: dict[str, int]
    visible: dict[str, int]


class TargetTopic:
    """The target of one query, at the two brokers of a cluster that keeps its files in a folder."""

    def __init__(self, topics: Topics, name: str, *, brokers: Path, checkpoint: Path) -> None:
        self._topics = topics
        self.name = name
        self._brokers = brokers
        self._checkpoint = checkpoint

    # --- what consumers see ---------------------------------------------------------------------

    def counted(self) -> Counter[str]:
        """How often consumers see each key."""
        return Counter(key for message in self._topics.messages(self.name) for key in message.keys)

    def marks(self) -> list[DeliveryMark]:
        """The task attempts of the rows that consumers see."""
        return [
            DeliveryMark.parse(message.properties[MARK])
            for message in self._topics.messages(self.name)
        ]

    # --- what the brokers keep ------------------------------------------------------------------

    def staged_marks(self) -> list[DeliveryMark]:
        """The task attempts that staged rows, committed or not."""
        return [
            DeliveryMark.parse(message.properties[MARK])
            for broker in (COORDINATOR, OTHER)
            for message in self._stored(broker, STAGING_TOPIC)
        ]

    def half_committed(self) -> HalfCommitted | None:
        """The batch that only the coordinator has moved; None if there is none now."""
        coordinator, other = self._state(COORDINATOR), self._state(OTHER)
        if coordinator is None or coordinator.decision is None or coordinator.is_moving:
            return None
        batch = coordinator.decided
        if coordinator.batch != batch or (other is not None and other.batch == batch):
            return None
        seen = Counter(
            message.broker_name
            for message in self._topics.messages(self.name)
            if DeliveryMark.parse(message.properties[MARK]).batch == batch
        )
        return HalfCommitted(
            batch,
            decided={
                broker: sum(part.writes.values()) for broker, part in coordinator.decision.items()
            },
            visible={broker: seen[broker] for broker in (COORDINATOR, OTHER)},
        )

    @contextmanager
    def moves_held(self) -> Iterator[None]:
        """Keep the coordinator from notifying the other broker; then let it, and wait for completion."""
        faults = self._topics.cluster.faults
        faults.hold_requests(OTHER, RequestCode.MOVE_ROWS)
        try:
            yield
        finally:
            faults.let_requests_go(OTHER, RequestCode.MOVE_ROWS)
        wait_until(self._is_complete, timeout_s=CLIENT_TIMEOUT_S, what="the decision's completion")

    def _is_complete(self) -> bool:
        state = self._state(COORDINATOR)
        return state is not None and state.decision is None

    def _state(self, broker: str) -> QueryState | None:
        """The query's state in the files of a broker."""
        metadata = self._checkpoint / "metadata"
        if not metadata.exists():
            return None
        query = json.loads(metadata.read_text())["id"]
        states = [
            msgspec.json.decode(message.body, type=QueryState)
            for message in self._stored(broker, QUERIES_TOPIC)
        ]
        return next((state for state in reversed(states) if state.query == query), None)

    def _stored(self, broker: str, topic: str) -> list[StoredMessage]:
        """Messages that consumers cannot see, from the first."""
        with ReadOnlyStore(self._brokers / broker) as store:
            end = store.bounds(topic, 0).end
            messages: list[StoredMessage] = []
            while len(messages) < end:
                messages += store.messages(topic, 0, len(messages), end - len(messages))
            return messages
