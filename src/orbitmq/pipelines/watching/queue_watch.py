"""Asks brokers, while batches run, how far queries are behind.

Threads: it has one of its own. The runner tells it where queries are; it notes `Lag` in the record.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Final, Self

from orbitmq.client import Admin, PullConsumer
from orbitmq.errors import OrbitError
from orbitmq.model.queues import MessageQueue
from orbitmq.pipelines.plan import Pipeline, TopicSource
from orbitmq.pipelines.watching.events import Lag
from orbitmq.pipelines.watching.progress import Position
from orbitmq.pipelines.watching.run_record import RunRecord
from orbitmq.spark.options.read_options import ReadOptions
from orbitmq.spark.reading.offsets import Offsets

log = logging.getLogger(__name__)

_PERIOD_S: Final = 5.0
_GROUP: Final = "orbitmq-pipeline-watch"
# Messages that are looked at in a round, for when they were stored.
_LOOKED_AT_MAX: Final = 16
_JOIN_S: Final = 30.0


@dataclass(slots=True)
class _Servers:
    """The clients for one topic source's name servers; each opens when it is first needed."""

    source: TopicSource
    opened: ExitStack
    _admin: Admin | None = None
    _consumer: PullConsumer | None = None

    @property
    def admin(self) -> Admin:
        if self._admin is None:
            self._admin = self.opened.enter_context(Admin(**self._options.client_keywords()))
        return self._admin

    @property
    def consumer(self) -> PullConsumer:
        if self._consumer is None:
            consumer = PullConsumer(_GROUP, **self._options.client_keywords())
            self._consumer = self.opened.enter_context(consumer)
        return self._consumer

    @property
    def _options(self) -> ReadOptions:
        given = {"namesrvAddr": self.source.namesrv, "subscribe": self.source.topic}
        return ReadOptions.from_spark({**given, **self.source.options}, streaming=True)


@dataclass(slots=True)
class QueueWatch:
    """Watches the queues of a pipeline's topics while it runs."""

    pipeline: Pipeline
    record: RunRecord
    period_s: float = _PERIOD_S
    _positions: dict[str, Mapping[MessageQueue, Position]] = field(default_factory=dict)
    _ended: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    _is_failing: bool = False

    def moved(self, query: str, positions: Mapping[MessageQueue, Position]) -> None:
        """Say where a query is now; from any thread."""
        self._positions[query] = positions

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._run, name="pipeline-queues", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join(_JOIN_S)

    def _run(self) -> None:
        with ExitStack() as opened:
            servers = [
                _Servers(source, opened)
                for source in self.pipeline.sources
                if isinstance(source, TopicSource)
            ]
            has_looked = False
            # The first round is late, so that short runs open no clients.
            while not self._ended.wait(self.period_s):
                self._try_to_look(servers)
                has_looked = True
            if has_looked:
                # What is left in the end.
                self._try_to_look(servers)

    def _try_to_look(self, servers: Iterable[_Servers]) -> None:
        try:
            self._look(servers)
        except OrbitError as error:
            if not self._is_failing:
                log.warning("no lag pipeline=%s: %s", self.pipeline.name, error)
            self._is_failing = True
        else:
            self._is_failing = False

    def _look(self, servers: Iterable[_Servers]) -> None:
        ends: Offsets = {}
        asked: dict[str, _Servers] = {}
        for one in servers:
            if one.source.topic not in asked:
                asked[one.source.topic] = one
                bounds = one.admin.topics.bounds(one.source.topic)
                ends |= {queue: bound.max_offset for queue, bound in bounds.items()}
        for query, positions in list(self._positions.items()):
            topics = {queue.topic for queue in positions}
            here = {queue: end for queue, end in ends.items() if queue.topic in topics}
            if not here:
                continue
            lags = {
                queue: end - positions[queue].offset if queue in positions else end
                for queue, end in here.items()
            }
            lags = {queue: lag for queue, lag in lags.items() if lag > 0}
            now_ms = self.record.clock.now_ms()
            stored_ms = self._oldest_ms(lags, positions, asked) if lags else now_ms
            self.record.note(
                Lag(
                    at_ms=now_ms,
                    query=query,
                    messages=sum(lags.values()),
                    behind_s=None if stored_ms is None else max(now_ms - stored_ms, 0) / 1000,
                    queues={name_of(queue): lag for queue, lag in lags.items()},
                )
            )

    def _oldest_ms(
        self,
        lags: Offsets,
        positions: Mapping[MessageQueue, Position],
        servers: Mapping[str, _Servers],
    ) -> int | None:
        """When the oldest message was stored that is not processed.

        Queues whose last processed message is oldest are asked; for the others, and where a message
        cannot be had, that message counts.
        """
        last_ms = {
            queue: positions[queue].last_stored_ms if queue in positions else None for queue in lags
        }
        oldest: list[int] = []
        for number, queue in enumerate(sorted(lags, key=lambda one: last_ms[one] or 0)):
            stored_ms = last_ms[queue]
            if number < _LOOKED_AT_MAX:
                consumer = servers[queue.topic].consumer
                offset = positions[queue].offset if queue in positions else 0
                pulled = consumer.pull(queue, "*", offset, 1)
                if pulled.messages:
                    stored_ms = pulled.messages[0].store_ms
            if stored_ms is not None:
                oldest.append(stored_ms)
        return min(oldest, default=None)


def name_of(queue: MessageQueue) -> str:
    """A queue, for people and programs: TOPIC/BROKER/ID."""
    return f"{queue.topic}/{queue.broker_name}/{queue.queue_id}"
