"""A message on its way into the store, and the receipt for it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from orbitmq.model.queues import PhysicalOffset, QueueOffset
from orbitmq.record.hosts import encode_host
from orbitmq.record.message_id import encode_message_id

if TYPE_CHECKING:
    from orbitmq.store.log.appender import Entry

NOWHERE: Final = encode_host("127.0.0.1", 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A message to store; the store adds offsets, time and its own address."""

    topic: str
    queue_id: int = 0
    body: bytes
    properties: bytes = b""
    flag: int = 0
    system_flag: int = 0
    born_ms: int = 0
    born_host: bytes = NOWHERE
    reconsume_times: int = 0
    prepared_offset: int = 0

    @property
    def entry(self) -> Entry:
        """The message as an entry of a batch."""
        return (
            self.body,
            self.properties,
            self.flag,
            self.system_flag,
            self.born_ms,
            self.born_host,
            self.reconsume_times,
            self.prepared_offset,
        )


class StoreDurability(Enum):
    """How safe a message was when its receipt was written."""

    MEMORY = "in memory; a crash of the machine may lose it"
    DISK = "on disk"
    DISK_TIMEOUT = "in memory; its flush took longer than the limit"


@dataclass(slots=True)
class Receipt:
    """Where a message was stored; `confirm` sets the durability it reached."""

    physical_offset: PhysicalOffset
    record_bytes: int
    queue_offset: QueueOffset
    store_ms: int
    store_host: bytes
    durability: StoreDurability = StoreDurability.MEMORY

    @property
    def end(self) -> PhysicalOffset:
        """The offset after the record."""
        return PhysicalOffset(self.physical_offset + self.record_bytes)

    @property
    def message_id(self) -> str:
        """The message id: store host and physical offset."""
        return encode_message_id(self.store_host, self.physical_offset)
