"""Check-back: asks producers how open transactions ended, and gives up on some.

A check goes to any producer of the group, in turn. It counts only if it was sent. The half is stored
again with each check, as in RocketMQ, so the count survives a restart. Checks that tools request count
as one at most, and are stored only then. A half that nobody can be
asked about is stored again, too, once much has been written after it: recovery reads from the oldest
open half on, and retention keeps the log from there.

Threads: the event loop's, a slice at a time; records are read off it.
Crash: a check whose copy is lost is answered for a message that is not there, which is refused; the
former copy is checked again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from itertools import chain, islice
from typing import TYPE_CHECKING, Final

from orbitmq.broker.transactions.half_messages import QUEUE_ID, copied, given_up
from orbitmq.clock import settle
from orbitmq.disk import off_loop
from orbitmq.errors import (
    MessageError,
    OrbitError,
    ProtocolError,
    StoreDamagedError,
    TransportError,
)
from orbitmq.model import property_names
from orbitmq.model.names import CHECKED_TOO_OFTEN_TOPIC, HALF_TOPIC
from orbitmq.model.topics import TopicConfig
from orbitmq.protocol.command import request as make_request
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.transactions import CheckTransaction
from orbitmq.record.codec import encode_record
from orbitmq.record.layout import record_bytes
from orbitmq.record.message_id import encode_message_id

if TYPE_CHECKING:
    from orbitmq.broker.config import BrokerConfig
    from orbitmq.broker.groups.consuming_group import ConnectedClient
    from orbitmq.broker.groups.members import Members
    from orbitmq.broker.topics.topic_table import TopicTable
    from orbitmq.broker.transactions.half_messages import Half
    from orbitmq.broker.transactions.half_queue import HalfQueue
    from orbitmq.clock import Clock
    from orbitmq.protocol.command import Command
    from orbitmq.record.decode import StoredMessage
    from orbitmq.store.log.draft import Draft
    from orbitmq.store.message_store import MessageStore

log = logging.getLogger(__name__)

# Halves, and bytes of them, that are handled before clients get their turn.
_SLICE: Final = 64
_SLICE_BYTES: Final = 1024 * 1024
# A half that is not checked is stored again once this much, and four times what all open halves
# take, was written after it.
_RENEW_BYTES: Final = 64 * 1024 * 1024
_RENEW_FACTOR: Final = 4
# A transaction stays open for an hour even if files of the log are deleted sooner.
_HOURS_MIN: Final = 1
# A check on request leaves out halves that a producer was asked about within this time.
_ASKED_PAUSE_MS: Final = 1000
_QUEUE_ID_MAX: Final = 2**31 - 1
# What a check adds to a half message: its header, which names the transaction twice, and the
# properties of a copy.
_CHECK_BYTES: Final = 2048
_IDS_IN_CHECK: Final = 2
# A character of an id may become two escapes of six bytes in the JSON of the header.
_CHARACTER_BYTES_MAX: Final = 12


class _Step(Enum):
    """What is done with an open half in a round."""

    GIVE_UP = "checked too often, or older than the files of the log get"
    CHECK = "ask a producer"
    RENEW = "store it again, near the end of the log"


class CheckBack:
    """Asks producers about open transactions."""

    def __init__(
        self,
        *,
        config: Callable[[], BrokerConfig],
        hours_max: Callable[[], int],
        store: MessageStore,
        halves: HalfQueue,
        members: Members,
        topics: TopicTable,
        clock: Clock,
        renew_bytes: int = _RENEW_BYTES,
    ) -> None:
        self._config = config
        self._hours_max = hours_max
        self._store = store
        self._halves = halves
        self._members = members
        self._topics = topics
        self._clock = clock
        self._renew_bytes = renew_bytes
        self._turn = 0
        self._is_refused = False

    async def check_all(self) -> None:
        """Handle every open half that is due."""
        try:
            for part in slices(list(self._halves.halves.values())):
                steps = [(half, step) for half in part if (step := self._step(half)) is not None]
                if steps:
                    await self._take(steps)
                await settle(1)
        except OrbitError as error:
            if not self._is_refused:
                log.warning("checks of transactions wait reason=%s", error)
            self._is_refused = True
        else:
            self._is_refused = False

    async def check_now(self, half: Half) -> str | None:
        """Ask about one open half, whatever its age; returns the client asked, None if nobody is.

        All such checks of a half together count as one, if it was not checked before: otherwise
        anybody could have transactions given up. One that was asked about just now is left alone.
        """
        newest = self._halves.halves.get(half.first_offset)
        message = await off_loop(self.read, newest) if newest is not None else None
        # It may have ended, or have been asked about, while it was read.
        current = self._halves.halves.get(half.first_offset)
        if newest is None or current is None:
            return None
        if self._is_just_asked(current) and (
            # The copy of the last check may not be visible yet.
            message is None or self._producer_for(message) is not None
        ):
            return current.asked_client
        if message is None or current is not newest:
            return None
        client = self._ask(newest, message, checks=max(newest.checks, 1))
        self._store.publish()
        self._store.request_flush()
        return client

    def _is_just_asked(self, half: Half) -> bool:
        # A time in the future is from before the clock was set back.
        return bool(half.asked_ms) and 0 <= self._clock.now_ms() - half.asked_ms < _ASKED_PAUSE_MS

    # --- one slice ----------------------------------------------------------------------------

    def _step(self, half: Half) -> _Step | None:
        if half.end > self._store.visible:
            return None
        config = self._config()
        age_ms = self._clock.now_ms() - half.since_ms
        age_ms_max = max(self._hours_max(), _HOURS_MIN) * 3_600_000
        if half.checks >= config.transaction_checks_max or age_ms > age_ms_max:
            return _Step.GIVE_UP
        immunity_ms = half.immunity_ms
        # One that seems to be of the future was stored before the clock was set back.
        if age_ms < 0 or age_ms >= (
            config.transaction_timeout_ms if immunity_ms is None else immunity_ms
        ):
            return _Step.CHECK
        return _Step.RENEW if self._is_far(half) else None

    def _is_far(self, half: Half) -> bool:
        distance = self._store.log_end - half.physical_offset
        return distance > max(self._renew_bytes, _RENEW_FACTOR * self._halves.open_bytes)

    async def _take(self, steps: Sequence[tuple[Half, _Step]]) -> None:
        if any(step is _Step.GIVE_UP for _, step in steps):
            await self._ensure_topic()
        messages = await off_loop(lambda: [self.read(half) for half, _ in steps])
        uncopied: list[tuple[Half, StoredMessage]] = []
        try:
            for (half, step), message in zip(steps, messages, strict=True):
                # It may have ended while the slice was read.
                if not self._is_open(half):
                    continue
                if message is None:
                    self._lose(half)
                elif step is _Step.GIVE_UP:
                    self._give_up(half, message)
                elif not self._ask_or_renew(half, message, step):
                    uncopied.append((half, message))
            if uncopied:
                await self._ensure_topic()
            for half, message in uncopied:
                if self._is_open(half):
                    self._give_up(half, message)
        finally:
            self._store.publish()
            self._store.request_flush()

    def _is_open(self, half: Half) -> bool:
        return self._halves.halves.get(half.first_offset) is half

    def read(self, half: Half) -> StoredMessage | None:
        """Read the newest copy of a half; None if it is damaged, or not visible yet."""
        try:
            return self._halves.read(half.offset)
        except StoreDamagedError:
            return None

    # --- steps --------------------------------------------------------------------------------

    async def _ensure_topic(self) -> None:
        """Create the topic of halves that are given up."""
        await self._topics.ensure(
            TopicConfig(name=CHECKED_TOO_OFTEN_TOPIC, read_queues=1, write_queues=1)
        )

    def _ask_or_renew(self, half: Half, message: StoredMessage, step: _Step) -> bool:
        """Ask, or store the half again; returns False if it cannot be copied."""
        try:
            if step is _Step.RENEW or self._ask(half, message, checks=half.checks + 1) is None:
                self._renew(half, message)
        except MessageError as error:
            # Other brokers store halves whose copies would be too large.
            log.warning(
                "half message cannot be stored again offset=%d reason=%s", half.offset, error
            )
            return False
        return True

    def _ask(self, half: Half, message: StoredMessage, *, checks: int) -> str | None:
        """Ask a producer of the group; None if there is none, and then nothing is changed.

        If it changes the count of checks, a copy of the half is stored.
        """
        producer = self._producer_for(message)
        if producer is None:
            return None
        unique_id = message.properties.get(property_names.UNIQUE_ID, "")
        ids_bytes = _IDS_IN_CHECK * _CHARACTER_BYTES_MAX * len(unique_id)
        frame_bytes = half.record_bytes + _CHECK_BYTES + ids_bytes
        if frame_bytes > producer.connection.frame_bytes_max:
            log.warning(
                "transaction not checked offset=%d bytes=%d reason=too large for a frame "
                "hint=raise frameMaxLength",
                half.offset, half.record_bytes,
            )  # fmt: skip
            return None
        is_counted = checks != half.checks
        draft = copied(message, half, checks=checks)
        newest = self._halves.copy(half, draft, checks=checks) if is_counted else half
        try:
            producer.connection.call_oneway(self._question(message, newest, draft))
        except (TransportError, ProtocolError) as error:
            log.info("transaction not checked client=%s reason=%s", producer.client_id, error)
            if is_counted:
                # The stored count would be believed after a restart.
                draft = copied(message, half, checks=half.checks)
                newest = self._halves.copy(newest, draft, checks=half.checks)
        else:
            self._halves.outcomes.checks += 1
        self._halves.note_asked(newest, client=producer.client_id, asked_ms=self._clock.now_ms())
        return producer.client_id

    def _producer_for(self, message: StoredMessage) -> ConnectedClient | None:
        """The next producer of a half's group, in turn, that reads what it is sent."""
        group = message.properties.get(property_names.PRODUCER_GROUP, "")
        producers = self._members.producers.get(group, {})
        self._turn += 1
        start = self._turn % len(producers) if producers else 0
        for client in chain(
            islice(producers.values(), start, None), islice(producers.values(), start)
        ):
            if not client.connection.closed and not client.connection.writing_paused:
                return client
        return None

    def _question(self, message: StoredMessage, half: Half, draft: Draft) -> Command:
        unique_id = message.properties.get(property_names.UNIQUE_ID)
        return make_request(
            CheckTransaction(
                topic=HALF_TOPIC,
                half_offset=Long(half.offset),
                physical_offset=Long(half.physical_offset),
                message_id=unique_id,
                transaction_id=unique_id,
                offset_message_id=encode_message_id(self._store.store_host, half.physical_offset),
                broker_name=self._config().broker_name,
            ),
            _record(message, half, draft),
        )

    def _renew(self, half: Half, message: StoredMessage) -> None:
        if self._is_far(half):
            self._halves.copy(half, copied(message, half, checks=half.checks), checks=half.checks)

    def _give_up(self, half: Half, message: StoredMessage) -> None:
        self._store.append(given_up(message, half))
        self._halves.end(half)
        self._halves.outcomes.given_up += 1
        log.error(
            "transaction given up id=%s group=%s topic=%s checks=%d hint=its message is in %s; commit "
            "it by sending that again",
            message.properties.get(property_names.UNIQUE_ID),
            message.properties.get(property_names.PRODUCER_GROUP),
            message.properties.get(property_names.REAL_TOPIC),
            half.checks,
            CHECKED_TOO_OFTEN_TOPIC,
        )

    def _lose(self, half: Half) -> None:
        self._halves.end(half)
        log.error(
            "half message lost queue=%d offset=%d reason=its record is deleted or damaged hint=run: "
            "orbitmq store verify",
            QUEUE_ID, half.offset,
        )  # fmt: skip


def slices(halves: Sequence[Half]) -> Iterator[Sequence[Half]]:
    """Cut halves into parts of limited count and size."""
    start = size = 0
    for index, half in enumerate(halves):
        if index > start and (index - start >= _SLICE or size + half.record_bytes > _SLICE_BYTES):
            yield halves[start:index]
            start, size = index, 0
        size += half.record_bytes
    if start < len(halves):
        yield halves[start:]


def _record(message: StoredMessage, half: Half, draft: Draft) -> bytes:
    """The newest copy of a half as a record of its real queue, as producers expect it."""
    topic = message.properties.get(property_names.REAL_TOPIC, "").encode()
    queue_id = message.properties.get(property_names.REAL_QUEUE_ID, "0")
    size = record_bytes(
        body_bytes=len(draft.body),
        topic_bytes=len(topic),
        properties_bytes=len(draft.properties),
        system_flag=message.system_flag,
    )
    record = bytearray(size)
    encode_record(
        record,
        0,
        topic,
        min(int(queue_id), _QUEUE_ID_MAX) if queue_id.isdecimal() else 0,
        half.offset,
        half.physical_offset,
        draft.body,
        draft.properties,
        message.flag,
        message.system_flag,
        message.born_ms,
        message.born_host_bytes,
        message.store_ms,
        message.store_host_bytes,
        message.reconsume_times,
        0,
    )
    return bytes(record)
