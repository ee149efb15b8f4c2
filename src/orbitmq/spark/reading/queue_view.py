"""What the driver sees of a cluster: the queues to read, where they begin and end.

Blocking; a question that got no answer is asked again as often as the options say.
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

# Messages from which the size of a queue's messages is guessed.
_SAMPLE_ROWS: Final = 32


class QueueView:
    """The part of a cluster that some options are about."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._opened = ExitStack()
        self._reader: RecordReader
        # Whether there ever was an answer: if not, it may be that the options are wrong.
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
            known: those that were there before. One that is not now may be back soon, as its broker
                is started anew: it is left out. A topic without any is waited for.
        """
        options = self._options
        assigned = options.assigned_queues
        topics = {queue.topic for queue in assigned} or self._topics()
        known_topics = {queue.topic for queue in known}
        there = [
            queue
            for topic in sorted(topics)
            for queue in self._queues_of(topic, is_known=topic in known_topics)
        ]
        if not assigned:
            return there
        missing = set(assigned) - set(there) - set(known)
        if missing:
            raise SettingsError(
                f"assign names {queue_text(min(missing))}, which is not there",
                hint="there are: " + (", ".join(map(_short, there)) or "none"),
            )
        return sorted(set(assigned) & set(there))

    def awaited(self, queues: Collection[MessageQueue]) -> set[MessageQueue]:
        """Wait for queues that are out of sight; give those that are there in the end."""
        left = self._options.retries
        while True:
            there: set[MessageQueue] = set()
            for topic in {queue.topic for queue in queues}:
                with suppress(RouteNotFoundError):
                    there.update(self._ask(partial(self._reader.present_queues, topic)))
            found = there & set(queues)
            if len(found) == len(set(queues)) or left == 0:
                return found
            missing = min(set(queues) - found)
            log.warning("waiting, since it is out of sight: %s", queue_text(missing))
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
            if name.removesuffix(REPLY_TOPIC_SUFFIX) not in servers and self._is_for_all(name)
        }
        if not topics:
            log.warning("no topic matches subscribePattern=%s", self._options.subscribe_pattern)
        return topics

    def _is_for_all(self, topic: str) -> bool:
        """Whether a pattern may mean a topic without saying so."""
        for prefix in (RETRY_PREFIX, DEAD_LETTER_PREFIX):
            if topic.startswith(prefix):
                return prefix in self._options.subscribe_pattern
        return not is_system_topic(topic)

    def _queues_of(self, topic: str, *, is_known: bool) -> list[MessageQueue]:
        may_be_gone = bool(self._options.subscribe_pattern)
        try:
            found = self._ask(
                partial(self._reader.present_queues, topic), may_come=is_known and not may_be_gone
            )
        except RouteNotFoundError as error:
            if may_be_gone:
                # It was deleted since its name was told.
                return []
            raise self._missing(topic) from error
        if not found and not may_be_gone:
            raise SettingsError(
                f"topic {topic!r} has no queue that may be read",
                hint=f"allow it with: orbitmq topic create {topic} --permission rw",
            )
        return found

    def _missing(self, topic: str) -> TopicMissingError:
        names = [name for name in self._ask(self._reader.topics) if not is_system_topic(name)]
        nearest = difflib.get_close_matches(topic, names, n=3)
        hint = f"did you mean {' or '.join(nearest)}?" if nearest else "create it first"
        return TopicMissingError(f"there is no topic {topic!r}", hint=hint)

    # --- offsets ------------------------------------------------------------------------------

    def earliest(self, queues: Iterable[MessageQueue]) -> Offsets:
        """The oldest message of each queue."""
        wanted = list(queues)
        return self._ask(lambda: self._reader.min_offsets(wanted))

    def latest(self, queues: Iterable[MessageQueue]) -> Offsets:
        """Behind the newest message of each queue."""
        wanted = list(queues)
        return self._ask(lambda: self._reader.max_offsets(wanted))

    def at_times(self, times_ms: Mapping[MessageQueue, int]) -> dict[MessageQueue, int | None]:
        """The first message of each queue stored at its time or later; None without one."""
        first, last = self.earliest(times_ms), self.latest(times_ms)
        found = self._ask(lambda: self._reader.offsets_for_times(times_ms))
        # Compat: RocketMQ's brokers say 0 for queues without messages, and may name deleted ones.
        return {
            queue: offset if (offset := max(found[queue], first[queue])) < last[queue] else None
            for queue in times_ms
        }

    def row_bytes(self, at: Offsets) -> dict[MessageQueue, float]:
        """Guess what a message of each queue takes, by some from an offset on."""
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

    def _ask(self, question: Callable[[], T], *, may_come: bool = False) -> T:
        """Ask, again if need be; `may_come` says that a topic that is missing is on its way."""
        left = self._options.retries
        if not self._was_answered:
            left = min(left, FIRST_RETRIES)
        while True:
            try:
                answer = question()
            except OrbitError as error:
                is_hopeless = isinstance(error, RouteNotFoundError) and not may_come
                if is_hopeless or not error.retryable or left == 0:
                    raise
                log.warning("asked again since there was no answer: %s", error)
            else:
                self._was_answered = True
                return answer
            left -= 1
            self._pause()

    def _pause(self) -> None:
        threading.Event().wait(self._options.retry_interval_ms / 1000)


def _short(queue: MessageQueue) -> str:
    return f"{queue.topic}/{queue.broker_name}/{queue.queue_id}"
