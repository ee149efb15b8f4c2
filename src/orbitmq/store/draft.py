"""A message on its way into the store, and the receipt for it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from orbitmq.errors import MessageError
from orbitmq.model.queues import PhysicalOffset, QueueOffset
from orbitmq.record.hosts import encode_host
from orbitmq.record.layout import (
    HOST_BYTES_V6,
    PROPERTIES_BYTES_MAX,
    TOPIC_BYTES_MAX,
    SystemFlag,
)

NOWHERE: Final = encode_host("127.0.0.1", 0)
_HOST_FLAGS: Final = int(SystemFlag.BORN_HOST_V6 | SystemFlag.STORE_HOST_V6)


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """What a producer wants stored; the store adds offsets, time and its own address."""

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

    def checked_topic(self, body_bytes_max: int) -> bytes:
        """The topic as bytes; raises MessageError when the message cannot be stored."""
        topic = self.topic.encode()
        if not topic or len(topic) > TOPIC_BYTES_MAX:
            raise MessageError(
                f"a topic of {len(topic)} bytes cannot be stored",
                hint=f"topics have 1 to {TOPIC_BYTES_MAX} bytes",
            )
        if b"\0" in topic or b"/" in topic or topic in (b".", b".."):
            raise MessageError(
                f"topic {self.topic!r} cannot be the name of a folder", hint="rename it"
            )
        if self.queue_id < 0:
            raise MessageError(f"there is no queue {self.queue_id}", hint="queues count from 0")
        if len(self.body) > body_bytes_max:
            raise MessageError(
                f"a body of {len(self.body)} bytes is above the limit of {body_bytes_max}",
                hint="send less at once, or raise maxMessageSize",
            )
        if len(self.properties) > PROPERTIES_BYTES_MAX:
            raise MessageError(
                f"properties of {len(self.properties)} bytes are above {PROPERTIES_BYTES_MAX}",
                hint="move what is large into the body",
            )
        if b"\0" in self.properties:
            # A page that a crash lost reads as zero bytes; recovery knows it by them.
            raise MessageError(
                "properties hold a zero byte", hint="encode the value, for example as base64"
            )
        return topic

    def record_flag(self, store_host: bytes) -> int:
        """The system flag of the record, which tells how long its hosts are."""
        flag = self.system_flag & ~_HOST_FLAGS
        if len(self.born_host) == HOST_BYTES_V6:
            flag |= SystemFlag.BORN_HOST_V6
        if len(store_host) == HOST_BYTES_V6:
            flag |= SystemFlag.STORE_HOST_V6
        return int(flag)


class Durability(Enum):
    """What a message had reached when its receipt was written."""

    MEMORY = "in memory; a crash of the machine may lose it"
    DISK = "on disk"
    DISK_TIMEOUT = "in memory; its flush took longer than the limit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """Where a message was put."""

    physical_offset: PhysicalOffset
    record_bytes: int
    queue_offset: QueueOffset
    store_ms: int
    message_id: str
    durability: Durability

    @property
    def end(self) -> PhysicalOffset:
        """The offset behind the record."""
        return PhysicalOffset(self.physical_offset + self.record_bytes)
