"""The driver's view of a cluster: the queues to read, their starts and ends.

Blocking; a request without a reply is retried as often as the options allow.
"""

from __future__ import annotations

import difflib
import logging
import re
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, Final, Self, TypeVar

from orbitmq.client.core.topic_routes import MissingQueues
from orbitmq.client.sync.record_reader import TopicLook
from orbitmq.clock import SystemClock
from orbitmq.errors import (
    BrokersMissingError,
    OrbitError,
    ProtocolError,
    RouteNotFoundError,
    SettingsError,
    TopicMissingError,
)
from orbitmq.model.names import (
    DEAD_LETTER_PREFIX,
    REPLY_TOPIC_SUFFIX,
    RETRY_PREFIX,
    is_system_topic,
)
from orbitmq.record.decode import decode_records
from orbitmq.spark.options.queue_texts import queue_text
from orbitmq.spark.options.read_options import FIRST_RETRIES, SKIP
from orbitmq.spark.reading.missing_brokers import (
    Look,
    MissingBrokers,
    Patience,
    known_but_missing,
    missing_error,
)
from orbitmq.spark.reading.offsets import SeenMessage
from orbitmq.spark.sessions.reader_pool import pooled_reader

if TYPE_CHECKING:
    from orbitmq.client.sync.record_reader import RecordReader
    from orbitmq.model.queues import MessageQueue
    from orbitmq.spark.options.read_options import ReadOptions
    from orbitmq.spark.reading.offsets import Offsets, Seen
    from orbitmq.spark.reading.partitions import QueueRange

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
        self._missing_brokers = MissingBrokers(options, pause=self._pause)
        # Queues seen in this run: one that is missing later had a broker.
        self._seen: set[MessageQueue] = set()
        # Topics of which nothing was missing at the last look.
        self._complete: set[str] = set()

    def __enter__(self) -> Self:
        self._reader = self._opened.enter_context(pooled_reader(self._options))
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    # --- queues -------------------------------------------------------------------------------

    def queues(self, known: Collection[MessageQueue] = ()) -> list[MessageQueue]:
        """List the queues to read, as they are now.

        Brokers that should be there and are not are waited for, by the option `missingBrokers`.

        Args:
            known: queues seen in earlier runs. One that is missing though its broker is not is left
                out: its topic has fewer queues now.
        """
        expected = self._seen.union(known)
        present = self._missing_brokers.complete(lambda: self._look(expected))
        self._seen.update(present)
        return present

    def wait_for(self, queues: Collection[MessageQueue]) -> set[MessageQueue]:
        """Wait for queues of a planned batch; return those that came back.

        Raises for missing brokers, unless they are to be skipped.
        """
        wanted = set(queues)
        patience = Patience(self._options, SystemClock())
        while True:
            look = self._survey({queue.topic for queue in wanted}, wanted)
            gone = wanted.difference(look.present)
            if not gone or not patience.lasts(look):
                break
            self._pause(patience.pause_ms)
        if gone and look.missing and self._options.missing_brokers != SKIP:
            raise missing_error(look.missing, waited_ms=patience.waited_ms)
        return wanted - gone

    def skipped(self, absent: Collection[MessageQueue]) -> set[MessageQueue]:
        """Those of absent queues that are skipped, since their broker is missing."""
        if not absent or self._options.missing_brokers != SKIP:
            return set()
        live = self._ask(self._reader.live_brokers)
        return {queue for queue in absent if queue.broker_name not in live}

    # --- one look at the cluster ----------------------------------------------------------------

    def _look(self, expected: Collection[MessageQueue]) -> Look:
        assigned = set(self._options.assigned_queues)
        topics = {queue.topic for queue in assigned} or self._topics()
        # A checkpoint keeps the positions of topics that the query no longer reads.
        expected = {one for one in expected if one.topic in topics or self._matches(one.topic)}
        look = self._survey(topics, expected, named=assigned)
        if not self._options.subscribe_pattern:
            self._check_topics(topics, look, expected)
        return self._only_assigned(look, assigned, expected) if assigned else look

    def _survey(
        self,
        topics: Collection[str],
        expected: Collection[MessageQueue],
        *,
        named: Collection[MessageQueue] = (),
    ) -> Look:
        """Find the queues of topics, and the brokers that are missing.

        Args:
            topics: where to look.
            expected: queues that were there before.
            named: queues that the options name.
        """
        present: list[MessageQueue] = []
        missing: list[MissingQueues] = []
        expected_topics = {queue.topic for queue in expected}
        for topic in sorted(topics):
            found = self._look_up(topic, is_expected=topic in expected_topics)
            present += found.present
            missing += [one for one in found.missing if one not in missing]
        told = {(queue.topic, queue.broker_name) for one in missing for queue in one.queues}
        missing += known_but_missing(
            [one for one in {*expected, *named} if (one.topic, one.broker_name) not in told],
            present=present,
            live_brokers=lambda: self._ask(self._reader.live_brokers),
        )
        return Look(present, missing)

    def _look_up(self, topic: str, *, is_expected: bool) -> TopicLook:
        # A name server that was restarted may not know all brokers yet: until nothing is missing,
        # all of them are asked.
        everywhere = topic not in self._complete
        try:
            found = self._ask(partial(self._reader.look_up, topic, everywhere=everywhere))
        except RouteNotFoundError as error:
            if not is_expected and not self._options.subscribe_pattern:
                raise self._topic_missing(topic) from error
            # It was deleted, or all its brokers are away.
            found = TopicLook([], [])
        if found.missing:
            self._complete.discard(topic)
        else:
            self._complete.add(topic)
        return found

    def _check_topics(
        self, topics: Collection[str], look: Look, expected: Collection[MessageQueue]
    ) -> None:
        """Raise for topics without any queue; a topic that had some before is waited for."""
        away = {queue.topic for one in look.missing for queue in one.queues}
        for topic in sorted(set(topics) - {queue.topic for queue in look.present} - away):
            found: list[MessageQueue] = []
            if any(queue.topic == topic for queue in expected):
                try:
                    found = self._ask(partial(self._reader.present_queues, topic), may_appear=True)
                except RouteNotFoundError as error:
                    raise self._topic_missing(topic) from error
            if not found:
                raise SettingsError(
                    f"topic {topic!r} has no readable queue",
                    hint=f"allow reads with: orbitmq topic create {topic} --permission rw",
                )
            look.present.extend(found)

    def _only_assigned(
        self, look: Look, assigned: set[MessageQueue], expected: Collection[MessageQueue]
    ) -> Look:
        missing = [
            one._replace(queues=queues)
            for one in look.missing
            if (queues := tuple(queue for queue in one.queues if queue in assigned))
        ]
        away = {queue for one in missing for queue in one.queues}
        unknown = assigned.difference(look.present, expected, away)
        if unknown:
            raise SettingsError(
                f"assign names {queue_text(min(unknown))}, which does not exist",
                hint="queues that exist: " + (", ".join(map(_short, look.present)) or "none"),
            )
        is_guess = all(one.since_ms is None for one in missing) and away.isdisjoint(expected)
        return Look(sorted(assigned.intersection(look.present)), missing, is_guess)

    def _topics(self) -> set[str]:
        if self._options.topics:
            return set(self._options.topics)
        matched = [name for name in self._ask(self._reader.topics) if self._matches(name)]
        servers = self._ask(self._reader.server_names) if matched else set()
        topics = {
            name
            for name in matched
            if name.removesuffix(REPLY_TOPIC_SUFFIX) not in servers and self._may_match(name)
        }
        if not topics:
            log.warning("no topic matches subscribePattern=%s", self._options.subscribe_pattern)
        return topics

    def _matches(self, topic: str) -> bool:
        pattern = self._options.subscribe_pattern
        return bool(pattern) and re.fullmatch(pattern, topic) is not None

    def _may_match(self, topic: str) -> bool:
        """Whether the pattern may match this topic; special ones only if it names their kind."""
        for prefix in (RETRY_PREFIX, DEAD_LETTER_PREFIX):
            if topic.startswith(prefix):
                return prefix in self._options.subscribe_pattern
        return not is_system_topic(topic)

    def _topic_missing(self, topic: str) -> TopicMissingError:
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

    def at_slaves(self, queues: Iterable[MessageQueue]) -> set[MessageQueue]:
        """Those of these queues that only slaves serve now, which may lag behind their masters."""
        wanted = list(queues)
        return self._ask(lambda: self._reader.slave_queues(wanted)) if wanted else set()

    def wait_for_copies(self, ranges: Iterable[QueueRange]) -> None:
        """Wait until slaves that stand in for their masters have the messages of these ranges.

        Raises if they do not get them in time: the messages are not lost, their master has them.
        """
        parts = [part for part in ranges if part.rows > 0]
        patience = Patience(self._options, SystemClock())
        while behind := self._behind(parts):
            names = sorted({part.queue.broker_name for part in behind})
            if not patience.lasts(Look([], _missing(behind))):
                raise BrokersMissingError(
                    f"the master of {' and '.join(names)} is away, and its slave does not have "
                    f"{queue_text(behind[0].queue)} from {behind[0].start} to {behind[0].end}; "
                    f"waited {patience.waited_ms / 1000:.0f} s",
                    broker_names=names,
                    hint="start the master, or set missingBrokers=wait; to do without these messages, "
                    "promote the slave",
                )
            self._pause(patience.pause_ms)

    def _behind(self, parts: Sequence[QueueRange]) -> list[QueueRange]:
        asked = {part.queue for part in parts}
        first, last = self.earliest(asked), self.latest(asked)
        outside = [
            part for part in parts if part.start < first[part.queue] or part.end > last[part.queue]
        ]
        slaves = self.at_slaves(part.queue for part in outside)
        return [part for part in outside if part.queue in slaves]

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

    def messages_at(self, offsets: Offsets) -> Seen:
        """Identify the message at an offset of each queue; those that are gone are left out."""
        found: Seen = {}
        for run in self._reader.runs_at(offsets).values():
            # A damaged one is reported by the task that reads it.
            with suppress(ProtocolError):
                for message in decode_records(run.records):
                    if message.queue_offset == offsets[run.queue]:
                        found[run.queue] = SeenMessage(
                            message.queue_offset, message.physical_offset, message.store_ms
                        )
        return found

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
            self._pause(self._options.retry_interval_ms)

    @staticmethod
    def _pause(pause_ms: float) -> None:
        threading.Event().wait(pause_ms / 1000)


def _missing(behind: Sequence[QueueRange]) -> list[MissingQueues]:
    queues: dict[str, list[MessageQueue]] = {}
    for part in behind:
        queues.setdefault(part.queue.broker_name, []).append(part.queue)
    return [MissingQueues(name, tuple(found), None) for name, found in sorted(queues.items())]


def _short(queue: MessageQueue) -> str:
    return f"{queue.topic}/{queue.broker_name}/{queue.queue_id}"
