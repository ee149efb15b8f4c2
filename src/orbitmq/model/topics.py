"""A topic as its broker stores it, and its permission bits."""

from __future__ import annotations

from enum import IntFlag
from typing import Final

import msgspec

from orbitmq.java_json import JavaInt

# Filter types of topics; the second is out of use.
SINGLE_TAG: Final = "SINGLE_TAG"
MULTI_TAG: Final = "MULTI_TAG"
# Our own attribute: where messages are kept; on disk unless it says otherwise.
STORAGE: Final = "orbitmq.storage"
STORAGE_MEMORY: Final = "memory"
STORAGE_DISK: Final = "disk"


class Permission(IntFlag):
    """What clients may do with the queues of a topic."""

    INHERIT = 1
    WRITE = 2
    READ = 4
    PRIORITY = 8


def permission_text(permission: int) -> str:
    """A permission as users write it."""
    text = "r" if permission & Permission.READ else ""
    text += "w" if permission & Permission.WRITE else ""
    return text or "none"


class UnitFlag(IntFlag):
    """Which side of a unit (RocketMQ's word for a deployment cell) a topic belongs to."""

    UNIT = 1
    SUBSCRIBED_BY_UNIT = 2


class TopicConfig(msgspec.Struct, frozen=True, kw_only=True):
    """One topic of one broker, with RocketMQ's field names on the wire and in files."""

    attributes: dict[str, str] = {}
    order: bool = False
    permission: JavaInt = msgspec.field(default=6, name="perm")
    read_queues: JavaInt = msgspec.field(default=16, name="readQueueNums")
    filter_type: str = msgspec.field(default="SINGLE_TAG", name="topicFilterType")
    name: str = msgspec.field(default="", name="topicName")
    unit_flag: JavaInt = msgspec.field(default=0, name="topicSysFlag")
    write_queues: JavaInt = msgspec.field(default=16, name="writeQueueNums")

    @property
    def is_readable(self) -> bool:
        """Whether clients may consume from it."""
        return bool(self.permission & Permission.READ)

    @property
    def is_writable(self) -> bool:
        """Whether clients may send to it."""
        return bool(self.permission & Permission.WRITE)

    @property
    def is_in_memory(self) -> bool:
        """Whether its messages are kept in memory only."""
        return self.attributes.get(STORAGE) == STORAGE_MEMORY

    @property
    def is_template(self) -> bool:
        """Whether new topics may be created from it."""
        return bool(self.permission & Permission.INHERIT)
