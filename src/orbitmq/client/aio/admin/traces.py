"""Finds the journeys of messages in the traces that clients wrote."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from orbitmq.client.core.tracing.journeys import Journey, Report, journeys_of, matches
from orbitmq.client.core.tracing.trace_messages import missing_topic_hint
from orbitmq.client.core.tracing.trace_records import Malformed, TraceRecord, decode_records
from orbitmq.errors import (
    MessageNotFoundError,
    OrbitError,
    ProtocolError,
    RouteNotFoundError,
    SettingsError,
    TopicBrokersMissingError,
    TopicMissingError,
)
from orbitmq.model.names import TRACE_TOPIC

if TYPE_CHECKING:
    from orbitmq.client.aio.admin.messages import Messages
    from orbitmq.client.core.consuming.received_message import ReceivedMessage

# As many as mqadmin asks for; brokers may return fewer.
TRACE_MESSAGES_MAX: Final = 64
# Messages with the same key whose journeys are looked up.
_JOURNEYS_MAX: Final = 32
_MALFORMED_SHOWN: Final = 20
_END_OF_TIME_MS: Final = 2**62


@dataclass(frozen=True, slots=True)
class MalformedTrace:
    """A part of a trace message that is no trace record."""

    # The offset message id of the trace message.
    trace_message_id: str
    reason: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSearch:
    """What a search in the traces found."""

    # Oldest first.
    journeys: tuple[Journey, ...]
    # How much could not be read, and the first of it.
    malformed_count: int
    malformed: tuple[MalformedTrace, ...]
    # Whether a limit was reached, so that there may be more.
    is_cut: bool


@dataclass(slots=True, eq=False)
class Traces:
    """Finds what clients reported about messages."""

    _messages: Messages

    async def of(
        self,
        id_or_key: str,
        *,
        trace_topic: str = TRACE_TOPIC,
        count_max: int = TRACE_MESSAGES_MAX,
        begin_ms: int = 0,
        end_ms: int = _END_OF_TIME_MS,
    ) -> TraceSearch:
        """Find the journeys of all messages with this id or key.

        Args:
            id_or_key: the id that the producer made, the offset message id, or a key.
            trace_topic: where clients write their traces.
            count_max: how many trace messages to read for each message.
            begin_ms: the earliest time of a trace message.
            end_ms: its latest time.

        Raises:
            TopicMissingError: there is no such trace topic.
            MessageNotFoundError: no trace names the message.
        """
        if not id_or_key.strip():
            raise SettingsError("no id and no key given", hint="give one of them")
        lookup = _Lookup(self._messages, trace_topic, count_max, begin_ms, end_ms)
        try:
            about = await lookup.read(id_or_key)
            if not about and (message_id := await self._unique_id(id_or_key)):
                id_or_key = message_id
                about = await lookup.read(message_id)
            ids = dict.fromkeys(report.record.message_id for report in about)
            if id_or_key not in ids:
                # Found by a key; records without keys are found by the id only.
                lookup.is_cut |= len(ids) > _JOURNEYS_MAX
                chosen = list(ids)[-_JOURNEYS_MAX:]
                for more in await asyncio.gather(*map(lookup.read, chosen)):
                    about += more
                ids = dict.fromkeys(chosen)
        except TopicBrokersMissingError:
            raise
        except RouteNotFoundError as error:
            raise TopicMissingError(
                f"there is no trace topic {trace_topic!r}", hint=missing_topic_hint(trace_topic)
            ) from error
        journeys = [journey for journey in journeys_of(about) if journey.message_id in ids]
        if not journeys:
            raise MessageNotFoundError(
                f"no trace in {trace_topic} names {id_or_key!r}"
                + (
                    f"; {len(lookup.malformed)} parts of traces are malformed"
                    * bool(lookup.malformed)
                ),
                hint="clients write traces if they are made with trace=True (Java: "
                "enableMsgTrace), within seconds",
            )
        return TraceSearch(
            journeys=tuple(sorted(journeys, key=lambda journey: journey.steps[0].time_ms)),
            malformed_count=len(lookup.malformed),
            malformed=tuple(lookup.malformed.values())[:_MALFORMED_SHOWN],
            is_cut=lookup.is_cut,
        )

    async def _unique_id(self, offset_message_id: str) -> str:
        """Return the id by which traces name a message; empty if there is no such message."""
        try:
            return (await self._messages.by_id(offset_message_id)).message_id
        except OrbitError:
            return ""


class _Lookup:
    """Reads trace messages, and keeps what was malformed in them."""

    def __init__(
        self, messages: Messages, topic: str, count_max: int, begin_ms: int, end_ms: int
    ) -> None:
        self._messages = messages
        self._topic = topic
        self._count_max = count_max
        self._begin_ms = begin_ms
        self._end_ms = end_ms
        # By trace message and position, as several searches may read the same message.
        self.malformed: dict[tuple[str, int], MalformedTrace] = {}
        self.is_cut = False

    async def read(self, id_or_key: str) -> list[Report]:
        """Read the records about a message."""
        found = await self._messages.by_key(
            self._topic,
            id_or_key,
            count_max=self._count_max,
            begin_ms=self._begin_ms,
            end_ms=self._end_ms,
        )
        self.is_cut |= len(found) >= self._count_max
        return [
            report
            for message in found
            for report in self._reports(message)
            if matches(report.record, id_or_key)
        ]

    def _reports(self, message: ReceivedMessage) -> list[Report]:
        records: list[TraceRecord] = []
        try:
            body = message.body
        except ProtocolError as error:
            malformed = [Malformed(str(error), "")]
        else:
            records, malformed = decode_records(body)
        trace_id = message.offset_message_id
        for number, part in enumerate(malformed):
            self.malformed[trace_id, number] = MalformedTrace(trace_id, part.reason, part.text)
        client = message.born_host[0]
        return [Report(record, client, message.store_ms) for record in records]
