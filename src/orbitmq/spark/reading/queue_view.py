"""The driver's view of a cluster: the queues to read, their starts and ends.

Blocking; a request without a reply is retried as often as the options allow.
"""

from __future__ import annotations

import difflib
import logging
import re
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, Final, Self, TypeVar

from orbitmq.errors import OrbitError, RouteNotFoundError, SettingsError, TopicMissingError
from orbitmq.model.names import (
    DEAD_LETTER_PREFIX,
    REPLY_TOPIC_SUFFIX,
    RETRY_PREFIX,
    is_system_topic,
)
from orbitmq.spark.options.queue_texts import queue_text
from orbitmq.spark.options.read_options import FIRST_RETRIES
from orbitmq.spark.sessions.reader_pool import pooled_reader

if TYPE_CHECKING:
    from orbitmq.client.sync.record_reader import RecordReader
    from orbitmq.model.queues import MessageQueue
    from orbitmq.spark.options.read_options import ReadOptions
    from orbitmq.spark.reading.offsets import Offsets

log = logging.getLogger(__name__)

T = TypeVar("T")

# Messages from which the size of a queue's messages is estimated.
_SAMPLE_ROWS: Final = 32


class QueueView:
    """The queues that the options of a read select."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._opened = ExitStack()
        self._reader: RecordReader
        # Whether any request was answered: if not, the options may be wrong.
        self._was_answered = False

    def __enter__(self) -> Self:
        self._reader = self._opened.enter_context(pooled_reader(self._options))
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    # --- queues -------------------------------------------------------------------------------

    def queues(self, known: Collection[MessageQueue] = ()) -> list[MessageQueue]:
        """List the queues to read, as they are now.

        Args:
            known: queues seen before. One that is missing now is left out: it may be back soon,
                when its broker has restarted. A known topic without any queue is waited for.
        """
        options = self._options
        assigned = options.assigned_queues
        topics = {queue.topic for queue in assigned} or self._topics()
        known_topics = {queue.topic for queue in known}
        present = [
            queue
            for topic in sorted(topics)
            for queue in self._queues_of(topic, is_known=topic in known_topics)
        ]
        if not assigned:
            return present
        missing = set(assigned) - set(present) - set(known)
        if missing:
            raise SettingsError(
                f"assign names {queue_text(min(missing))}, which does not exist",
                hint="queues that exist: " + (", ".join(map(_short, present)) or "none"),
            )
        return sorted(set(assigned) & set(present))

    def wait_for(self, queues: Collection[MessageQueue]) -> set[MessageQueue]:
        """Wait for missing queues, as long as retries last; return those that came back."""
        left = self._options.retries
        while True:
            present: set[MessageQueue] = set()
            for topic in {queue.topic for queue in queues}:
                with suppress(RouteNotFoundError):
                    present.update(self._ask(partial(self._reader.present_queues, topic)))
            found = present & set(queues)
            if len(found) == len(set(queues)) or left == 0:
                return found
            missing = min(set(queues) - found)
            log.warning("waiting for a missing queue: %s", queue_text(missing))
            left -= 1
            self._pause()

    def _topics(self) -> set[str]:
        if self._options.topics:
            return set(self._options.topics)
        pattern = re.compile(self._options.subscribe_pattern)
        matched = [name for name in self._ask(self._reader.topics) if pattern.fullmatch(name)]
        servers = self._ask(self._reader.server_names) if matched else set()
        topics = {
            name
            for name in matched
            if name.removesuffix(REPLY_TOPIC_SUFFIX) not in servers and self._may_match(name)
        }
        if not topics:
            log.warning("no topic matches subscribePattern=%s", self._options.subscribe_pattern)
        return topics

    def _may_match(self, topic: str) -> bool:
        """Whether the pattern may match this topic; special ones only if it names their kind."""
        for prefix in (RETRY_PREFIX, DEAD_LETTER_PREFIX):
            if topic.startswith(prefix):
                return prefix in self._options.subscribe_pattern
        return not is_system_topic(topic)

    def _queues_of(self, topic: str, *, is_known: bool) -> list[MessageQueue]:
        may_be_gone = bool(self._options.subscribe_pattern)
        try:
            found = self._ask(
                partial(self._reader.present_queues, topic),
                may_appear=is_known and not may_be_gone,
            )
        except RouteNotFoundError as error:
            if may_be_gone:
                # It was deleted after the topics were listed.
                return []
            raise self._missing(topic) from error
        if not found and not may_be_gone:
            raise SettingsError(
                f"topic {topic!r} has no readable queue",
                hint=f"allow reads with: orbitmq topic create {topic} --permission rw",
            )
        return found

    def _missing(self, topic: str) -> TopicMissingError:
        names = [name for name in self._ask(self._reader.topics) if not is_system_topic(name)]
        nearest = difflib.get_close_matches(topic, names, n=3)
        hint = f"did you mean {' or '.join(nearest)}?" if nearest else "create it first"
        return TopicMissingError(f"there is no topic {topic!r}", hint=hint)

    # --- offsets ------------------------------------------------------------------------------

    def earliest(self, queues: Iterable[MessageQueue]) -> Offsets:
        """The offset of the oldest message of each queue."""
        wanted = list(queues)
        return self._ask(lambda: self._reader.min_offsets(wanted))

    def latest(self, queues: Iterable[MessageQueue]) -> Offsets:
        """The offset after the newest message of each queue."""
        wanted = list(queues)
        return self._ask(lambda: self._reader.max_offsets(wanted))

    def at_times(self, times_ms: Mapping[MessageQueue, int]) -> dict[MessageQueue, int | None]:
        """The first message of each queue stored at its time or later; None if it has none."""
        first, last = self.earliest(times_ms), self.latest(times_ms)
        found = self._ask(lambda: self._reader.offsets_for_times(times_ms))
        # Compat: RocketMQ's brokers return 0 for empty queues, and may return deleted messages.
        return {
            queue: offset if (offset := max(found[queue], first[queue])) < last[queue] else None
            for queue in times_ms
        }

    def row_bytes(self, at: Offsets) -> dict[MessageQueue, float]:
        """Estimate the bytes per message of each queue from the messages at an offset."""
        ends = self.latest(at)
        ranges = [
            (queue, start, min(start + _SAMPLE_ROWS, ends[queue])) for queue, start in at.items()
        ]
        seen: dict[MessageQueue, list[int]] = {}
        for run in self._reader.read(ranges):
            sums = seen.setdefault(run.queue, [0, 0])
            sums[0] += len(run.records)
            sums[1] += run.end - run.start
        return {queue: size / rows for queue, (size, rows) in seen.items()}

    # --- inside -------------------------------------------------------------------------------

    def _ask(self, request: Callable[[], T], *, may_appear: bool = False) -> T:
        """Make a request, with retries; `may_appear` retries also while a topic is missing."""
        left = self._options.retries
        if not self._was_answered:
            left = min(left, FIRST_RETRIES)
        while True:
            try:
                answer = request()
            except OrbitError as error:
                is_hopeless = isinstance(error, RouteNotFoundError) and not may_appear
                if is_hopeless or not error.retryable or left == 0:
                    raise
                log.warning("retrying a request to the cluster: %s", error)
            else:
                self._was_answered = True
                return answer
            left -= 1
            self._pause()

    def _pause(self) -> None:
        threading.Event().wait(self._options.retry_interval_ms / 1000)


def _short(queue: MessageQueue) -> str:
    return f"{queue.topic}/{queue.broker_name}/{queue.queue_id}"
