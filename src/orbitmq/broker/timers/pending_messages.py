"""Pending messages: not due yet, listed, counted and brought forward for tools.

Bringing forward stores the copy that delivery would store, and after it the marker that takes the
message back from its slot. A save of the progress never falls between the two.

Few requests are at work at a time, and few wait; others are refused. Each reads in slices, and only one
slice at a time waits for its turn at the files. So delivery waits for one slice, never for a request.

Threads: the event loop's; files are read off it, in turn with delivery.
Crash: `recover` stores markers that are missing: of copies found at the start whose time has not
come. So a message is brought forward or pending, never both or neither.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

from orbitmq.broker.real_queues import original_draft
from orbitmq.broker.timers.recall_markers import Recall, recall_draft, recall_of
from orbitmq.broker.tool_requests import ToolRequests
from orbitmq.disk import off_loop
from orbitmq.errors import (
    MessageNotFoundError,
    OrbitError,
    RequestRefusedError,
    StoreDamagedError,
)
from orbitmq.model import property_names
from orbitmq.model.recall_handles import RecallHandle
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.requests.pending import PendingCounts, PendingMessage, PendingPage
from orbitmq.store.timers.delivered_copies import timer_id
from orbitmq.store.timers.layout import floor
from orbitmq.store.timers.pending import PendingTimers, Place
from orbitmq.store.timers.timer_messages import due_ms_of, slot_ms_of

if TYPE_CHECKING:
    from orbitmq.broker.storing import Storing
    from orbitmq.broker.timers.timer_delivery import TimerDelivery
    from orbitmq.clock import Clock
    from orbitmq.protocol.requests.pending import CountPending, ListPending
    from orbitmq.record.decode import StoredMessage
    from orbitmq.store.config import StoreConfig
    from orbitmq.store.log.draft import Draft, Receipt
    from orbitmq.store.message_store import MessageStore

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

# Messages of a page, beside the rest of one read of the timer log, and units read for it.
PAGE_MAX: Final = 1000
UNITS_MAX: Final = 4096
# Seconds with messages that one count looks at.
COUNTED_MAX: Final = 20_000
_FOREVER_MS: Final = 2**62
_SPAN_MS_MIN: Final = 1000


@dataclass(slots=True, eq=False, kw_only=True)
class PendingMessages:
    """The pending messages of one broker."""

    store: MessageStore
    storing: Storing
    delivery: TimerDelivery
    pending: PendingTimers
    config: Callable[[], StoreConfig]
    broker_name: Callable[[], str]
    on_delivered: Callable[[Draft], None]
    clock: Clock
    _requests: ToolRequests = field(
        default_factory=lambda: ToolRequests("for pending messages"), init=False
    )
    # Held by the one request that waits for its turn at the files, or has it.
    _next: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        # Invariant: at most one request waits for the turn, so it is first come, first served
        # between that one and delivery.
        async with self._next, self.delivery.turn:
            yield

    async def _in_turn(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        async with self._turn():
            return await off_loop(work, *args, **kwargs)

    async def page(self, asked: ListPending) -> PendingPage:
        """List messages, or those with one id."""
        async with self._requests.at_work():
            return await self._page(asked)

    async def _page(self, asked: ListPending) -> PendingPage:
        if asked.message_id is not None:
            found = await self._in_turn(self.pending.find, asked.message_id)
            return PendingPage(
                messages=[
                    self._described(_due_ms(each), each)
                    for each in found.messages
                    if not self.delivery.is_being_recalled(each)
                ]
            )
        place: Place | None = (
            _place(asked.cursor) if asked.cursor else Place(floor(max(asked.due_from_ms - 1, 0)))
        )
        until_ms = asked.due_until_ms or _FOREVER_MS
        limit = max(1, min(asked.limit, PAGE_MAX))
        messages: list[PendingMessage] = []
        units_left, count_left = UNITS_MAX, limit
        while place is not None and units_left > 0 and count_left > 0:
            try:
                page = await self._in_turn(self.pending.page, place, until_ms, count_left)
            except StoreDamagedError as damage:
                raise RequestRefusedError(
                    ResponseCode.INVALID_PARAMETER,
                    f"cannot continue at {asked.cursor!r}: {damage}",
                    hint="begin again without a cursor",
                ) from damage
            messages += [
                self._described(due_ms, message)
                for due_ms, message in page.messages
                if asked.due_from_ms <= due_ms <= until_ms
                and not self.delivery.is_being_recalled(message)
                and asked.topic in {None, "", _real_topic(message)}
            ]
            place = page.next_place
            units_left -= page.units
            count_left -= len(page.messages)
        return PendingPage(
            messages=messages,
            cursor=f"{place.slot_ms}:{place.position}" if place is not None else "",
        )

    async def counts(self, asked: CountPending) -> PendingCounts:
        """Count messages by due time."""
        async with self._requests.at_work():
            return await self._counts(asked)

    async def _counts(self, asked: CountPending) -> PendingCounts:
        until_ms = asked.due_until_ms or _FOREVER_MS
        span_ms = max(asked.span_ms, _SPAN_MS_MIN)
        counts: dict[int, int] = {}
        next_ms, slots_left = max(asked.due_from_ms, 0), COUNTED_MAX
        while slots_left > 0:
            counted = await self._in_turn(self.pending.count, next_ms, until_ms)
            for slot_ms, count in counted.counts:
                if count:
                    start_ms = (slot_ms + 1) // span_ms * span_ms
                    counts[start_ms] = counts.get(start_ms, 0) + count
            slots_left -= len(counted.counts)
            next_ms = counted.next_ms
            if not next_ms:
                break
        return PendingCounts(counts=sorted(counts.items()), next_ms=next_ms)

    async def bring_forward(self, message_id: str, topic: str) -> None:
        """Deliver a message now; raises MessageNotFoundError if none with that id is pending."""
        async with self._requests.at_work():
            receipts = await self._stored_forward(message_id, topic)
        stored = await self.storing.confirm(receipts)
        if stored.durability.late:
            raise RequestRefusedError(
                stored.durability.code,
                stored.durability.late,
                hint="the message is delivered; a power loss may undo that",
            )

    async def _stored_forward(self, message_id: str, topic: str) -> list[Receipt]:
        async with self._turn():
            found = await off_loop(self.pending.find, message_id)
            # In the second of its due time it may be on its way already.
            begun_ms = max(self.clock.now_ms(), self.delivery.timers.read_ms)
            wanted = [
                m
                for m in found.messages
                if _real_topic(m) == topic
                and _slot_ms(m) > begun_ms
                # What takes it back may not be visible yet: a recall, or another such request.
                and not self.delivery.is_being_recalled(m)
            ]
            if not wanted:
                raise MessageNotFoundError(
                    f"no message {message_id[:255]!r} of topic {topic!r} is pending",
                    hint="it is delivered or recalled, or due within a second",
                )
            if found.is_cut:
                # A marker takes back all that have the id, also those that were not found.
                raise RequestRefusedError(
                    ResponseCode.INVALID_PARAMETER,
                    f"too many messages have the id {message_id[:255]!r}",
                    hint="wait until they are due, or recall them and send again what you need",
                )
            return [each for slot in _by_slot(wanted) for each in self._bring_forward(slot)]

    async def recover(self) -> None:
        """Store the markers that a crash prevented; before delivery starts."""
        taken_back: set[Recall] = set()
        for message in await off_loop(self.delivery.timers.brought_forward):
            recall = recall_of(self._handle(message), self.config())
            if recall in taken_back:
                continue
            taken_back.add(recall)
            log.info(
                "timer message taken back reason=it was brought forward id=%s topic=%s",
                _unique_id(message), _real_topic(message),
            )  # fmt: skip
            try:
                await self._complete(message)
            except OrbitError as error:
                # Its time has come meanwhile, or the store is full: no reason not to start.
                log.warning(
                    "timer message not taken back hint=a restart before its due time may deliver it "
                    "again id=%s reason=%s",
                    _unique_id(message), error,
                )  # fmt: skip
        self.store.publish()
        self.store.request_flush()

    def _bring_forward(self, alike: list[StoredMessage]) -> list[Receipt]:
        """Store the copies of messages that one marker takes back, and then the marker."""
        # All are made before one is stored: a copy without its marker is delivered again.
        drafts, _ = [self._copy(message) for message in alike], self._marker(alike[0])
        receipts = []
        for draft in drafts:
            receipts.append(self.store.append(draft))
            self.on_delivered(draft)
        return [*receipts, self._take_back(alike[0])]

    async def _complete(self, message: StoredMessage) -> None:
        """Store the marker of a copy, and before it the copies of all else that it takes back."""
        found = await off_loop(self.pending.find, _unique_id(message))
        place = _real_topic(message), _slot_ms(message)
        for draft in [
            self._copy(m)
            for m in found.messages
            if (_real_topic(m), _slot_ms(m)) == place and not self.delivery.timers.is_copied(m)
        ]:
            self.store.append(draft)
            self.on_delivered(draft)
        self._take_back(message)

    def _take_back(self, message: StoredMessage) -> Receipt:
        recall = recall_of(self._handle(message), self.config())
        # Even if the marker cannot be stored now, this broker does not deliver it again.
        self.delivery.begin_recall(recall)
        receipt = self.store.append(self._marker(message))
        self.delivery.end_recall(recall, receipt.queue_offset)
        return receipt

    def _marker(self, message: StoredMessage) -> Draft:
        return recall_draft(self._handle(message), self.config(), now_ms=self.clock.now_ms())

    def _copy(self, message: StoredMessage) -> Draft:
        added = {
            property_names.TIMER_ENQUEUED_MS: str(floor(message.store_ms)),
            property_names.TIMER_DEQUEUED_MS: str(self.clock.now_ms()),
        }
        return original_draft(message, added, prepared_offset=timer_id(message.physical_offset))

    def _handle(self, message: StoredMessage) -> RecallHandle:
        return RecallHandle(
            topic=_real_topic(message),
            broker_name=self.broker_name(),
            time_ms=_slot_ms(message) + 1,
            unique_id=_unique_id(message),
        )

    def _described(self, due_ms: int, message: StoredMessage) -> PendingMessage:
        return PendingMessage(
            message_id=_unique_id(message),
            topic=_real_topic(message),
            due_ms=due_ms,
            stored_ms=message.store_ms,
            keys=message.properties.get(property_names.KEYS, ""),
            body_bytes=len(message.stored_body),
            recall_handle=self._handle(message).issued or "",
        )


def _real_topic(message: StoredMessage) -> str:
    return message.properties.get(property_names.REAL_TOPIC, "")


def _unique_id(message: StoredMessage) -> str:
    return message.properties.get(property_names.UNIQUE_ID, "")


def _by_slot(messages: list[StoredMessage]) -> list[list[StoredMessage]]:
    slots: dict[int, list[StoredMessage]] = {}
    for message in messages:
        slots.setdefault(_slot_ms(message), []).append(message)
    return list(slots.values())


def _slot_ms(message: StoredMessage) -> int:
    slot_ms = slot_ms_of(message)
    assert slot_ms is not None
    return slot_ms


def _due_ms(message: StoredMessage) -> int:
    return due_ms_of(message, _slot_ms(message))


def _place(cursor: str) -> Place:
    """Parse a cursor; raises RequestRefusedError if it is none."""
    slot, _, position = cursor[:60].partition(":")
    try:
        return Place(floor(max(int(slot), 0)), max(int(position), -1))
    except ValueError as error:
        raise RequestRefusedError(
            ResponseCode.INVALID_PARAMETER,
            f"{cursor[:60]!r} is not where a page ended",
            hint="begin without a cursor, then send the one of the reply",
        ) from error
