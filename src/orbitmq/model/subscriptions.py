"""Subscriptions: which messages of a topic a group wants, and how it consumes.

The enums below arrive from peers as names. RocketMQ adds to them over time, so an unknown name is
kept and passed on unchanged; compare them with the constants.
"""

from __future__ import annotations

from typing import Final

import msgspec

from orbitmq.java_json import EnumName, JavaInt, JavaLong


class ConsumeType(EnumName):
    """Who starts a read: the application (pull), the client (push), or the broker chooses (pop)."""

    __slots__ = ()
    NAMES = ("CONSUME_ACTIVELY", "CONSUME_PASSIVELY", "CONSUME_POP")


PULL: Final = ConsumeType("CONSUME_ACTIVELY")
PUSH: Final = ConsumeType("CONSUME_PASSIVELY")
POP: Final = ConsumeType("CONSUME_POP")


class MessageModel(EnumName):
    """Whether the members of a group share the messages, or each gets all of them."""

    __slots__ = ()
    NAMES = ("BROADCASTING", "CLUSTERING")


CLUSTERING: Final = MessageModel("CLUSTERING")
BROADCASTING: Final = MessageModel("BROADCASTING")


class ConsumeFrom(EnumName):
    """Where a group without committed offsets starts; three older values are out of use."""

    __slots__ = ()
    NAMES = (
        "CONSUME_FROM_LAST_OFFSET",
        "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
        "CONSUME_FROM_MIN_OFFSET",
        "CONSUME_FROM_MAX_OFFSET",
        "CONSUME_FROM_FIRST_OFFSET",
        "CONSUME_FROM_TIMESTAMP",
    )


FROM_LAST_OFFSET: Final = ConsumeFrom("CONSUME_FROM_LAST_OFFSET")
FROM_FIRST_OFFSET: Final = ConsumeFrom("CONSUME_FROM_FIRST_OFFSET")
FROM_TIMESTAMP: Final = ConsumeFrom("CONSUME_FROM_TIMESTAMP")

TAG: Final = "TAG"
SQL92: Final = "SQL92"
EVERYTHING: Final = "*"


class Subscription(msgspec.Struct, frozen=True, kw_only=True):
    """Which messages of a topic a group wants: RocketMQ's SubscriptionData."""

    class_filter: bool = msgspec.field(default=False, name="classFilterMode")
    # Compat: Go clients hash non-ASCII tags differently from Java; do not filter by these.
    tag_codes: list[JavaInt] = msgspec.field(default_factory=list, name="codeSet")
    expression_type: str = msgspec.field(default=TAG, name="expressionType")
    expression: str = msgspec.field(default="", name="subString")
    version: JavaLong = msgspec.field(default=0, name="subVersion")
    tags: list[str] = msgspec.field(default_factory=list, name="tagsSet")
    topic: str = ""

    @property
    def is_by_tag(self) -> bool:
        """Whether the expression names tags, which is also the case without a type."""
        return self.expression_type in ("", TAG)
