"""Trace records of consumers: one before a message is processed, one after."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from orbitmq.client.core.tracing.trace_records import USUAL_REGION, Consumed, Delivered
from orbitmq.model import property_names

if TYPE_CHECKING:
    from orbitmq.client.core.consuming.received_message import ReceivedMessage

_PREFIX_CHARACTERS: Final = 24


class DeliveryRecords:
    """Makes the records of one consumer; from any thread."""

    def __init__(self, group: str) -> None:
        """Make records for a group, given without its namespace."""
        self._group = group
        # Unique in the cluster, and cheap to make.
        self._prefix = uuid.uuid4().hex[:_PREFIX_CHARACTERS].upper()
        self._numbers = itertools.count()

    def before(self, messages: Sequence[ReceivedMessage], *, time_ms: int) -> list[Delivered]:
        """Make the records about messages that the consumer begins to process together."""
        request_id = f"{self._prefix}{next(self._numbers) & 0xFFFFFFFF:08X}"
        return [
            Delivered(
                time_ms=time_ms,
                region=message.properties.get(property_names.REGION) or USUAL_REGION,
                group=self._group,
                request_id=request_id,
                message_id=message.message_id,
                retries=message.reconsume_times,
                keys=" ".join(message.keys),
            )
            for message in messages
            if message.properties.get(property_names.TRACE_ON) != "false"
        ]

    def after(
        self,
        begun: Sequence[Delivered],
        *,
        time_ms: int,
        spent_ms: float,
        count: int,
        success: bool,
        code: int = 0,
    ) -> Iterator[Consumed]:
        """Make the records about the end: of `count` messages in `spent_ms`, some untraced."""
        cost_ms = int(spent_ms / count)
        for record in begun:
            yield Consumed(
                request_id=record.request_id,
                message_id=record.message_id,
                cost_ms=cost_ms,
                success=success,
                keys=record.keys,
                code=code,
                time_ms=time_ms,
                group=self._group,
            )
