"""Names of topics and groups: their rules, and names with a special meaning.

A topic that belongs to a group has the group's name after a prefix:

    %RETRY%<group>   messages that the group failed to consume and will retry
    %DLQ%<group>     messages that it gave up on ("dead letters")
"""

from __future__ import annotations

import re
from typing import Final

from orbitmq.errors import NameRuleError

TOPIC_LENGTH_MAX: Final = 127
# Compat: a retry topic of RocketMQ 5's pop consumers contains a group and a topic.
GROUP_TOPIC_LENGTH_MAX: Final = 255
GROUP_LENGTH_MAX: Final = 120

RETRY_PREFIX: Final = "%RETRY%"
DEAD_LETTER_PREFIX: Final = "%DLQ%"
SYSTEM_TOPIC_PREFIX: Final = "rmq_sys_"
SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"
REPLY_TOPIC_SUFFIX: Final = "_REPLY_TOPIC"

TEMPLATE_TOPIC: Final = "TBW102"
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
BENCHMARK_TOPIC: Final = "BenchmarkTest"
HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
HALF_DONE_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
CHECKED_TOO_OFTEN_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
SELF_TEST_TOPIC: Final = "SELF_TEST_TOPIC"
OFFSET_MOVED_TOPIC: Final = "OFFSET_MOVED_EVENT"
CHECKPOINT_TOPIC: Final = "CHECKPOINT_TOPIC"
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
# OrbitMQ's own: staged rows that are not committed yet, and the state of the queries that write them.
STAGING_TOPIC: Final = "rmq_sys_orbitmq_staging"
QUERIES_TOPIC: Final = "rmq_sys_orbitmq_queries"

# Clients may not send to these: only the broker writes them.
BROKER_ONLY_TOPICS: Final = frozenset(
    {
        SCHEDULE_TOPIC,
        HALF_TOPIC,
        HALF_DONE_TOPIC,
        CHECKED_TOO_OFTEN_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_TOPIC,
        TIMER_TOPIC,
        STAGING_TOPIC,
        QUERIES_TOPIC,
    }
)
SYSTEM_TOPICS: Final = BROKER_ONLY_TOPICS | {
    TEMPLATE_TOPIC,
    BENCHMARK_TOPIC,
    TRACE_TOPIC,
    CHECKPOINT_TOPIC,
}

TRANSACTION_GROUP: Final = "CID_RMQ_SYS_TRANS"
# Tools consume with this group, so that they create no group of their own.
TOOLS_GROUP: Final = "TOOLS_CONSUMER"
# Groups that every broker has from its start.
PREDEFINED_GROUPS: Final = (
    TOOLS_GROUP,
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    TRANSACTION_GROUP,
)
SYSTEM_GROUPS: Final = frozenset(PREDEFINED_GROUPS) | {
    "DEFAULT_CONSUMER",
    "DEFAULT_PRODUCER",
    "SCHEDULE_CONSUMER",
    "__MONITOR_CONSUMER",
    "CLIENT_INNER_PRODUCER",
    "SELF_TEST_P_GROUP",
}

_ALLOWED: Final = re.compile(r"[%|a-zA-Z0-9_-]+")
_RULE: Final = "letters, digits, %, |, _ and - are allowed"


def check_topic(name: str) -> None:
    """Raise NameRuleError unless `name` can be the name of a topic."""
    _check_type("topic", name)
    length_max = GROUP_TOPIC_LENGTH_MAX if is_group_topic(name) else TOPIC_LENGTH_MAX
    _check("topic", name, length_max)


def check_group(name: str) -> None:
    """Raise NameRuleError unless `name` can be the name of a group."""
    _check_type("group", name)
    _check("group", name, GROUP_LENGTH_MAX)


def _check_type(kind: str, name: object) -> None:
    if not isinstance(name, str):
        raise NameRuleError(
            f"the name of the {kind} cannot be of type {type(name).__name__}", hint="it takes a str"
        )


def _check(kind: str, name: str, length_max: int) -> None:
    if not name.strip():
        raise NameRuleError(f"the name of the {kind} is blank", hint=_RULE)
    if not _ALLOWED.fullmatch(name):
        wrong = next(letter for letter in name if not _ALLOWED.fullmatch(letter))
        # The name may have any length and content: it is shown truncated and escaped.
        raise NameRuleError(f"{kind} name {name[:60]!r} contains {wrong!r}", hint=_RULE)
    if len(name) > length_max:
        raise NameRuleError(
            f"{kind} name {name[:60]!r}… has {len(name)} characters",
            hint=f"at most {length_max} are allowed",
        )


def retry_topic(group: str) -> str:
    """Return the topic of messages that a group retries."""
    return RETRY_PREFIX + group


def dead_letter_topic(group: str) -> str:
    """Return the topic of messages that a group gave up on."""
    return DEAD_LETTER_PREFIX + group


def is_retry_topic(topic: str) -> bool:
    """Whether a topic holds the retries of a group."""
    return topic.startswith(RETRY_PREFIX)


def is_group_topic(topic: str) -> bool:
    """Whether a topic belongs to a group: its retries or its dead letters."""
    return topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX))


def is_system_topic(topic: str) -> bool:
    """Whether a topic is RocketMQ's own, except those named after a cluster or broker."""
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_TOPIC_PREFIX)


def is_system_group(group: str) -> bool:
    """Whether a group is RocketMQ's own."""
    return group in SYSTEM_GROUPS or group.startswith(SYSTEM_GROUP_PREFIX)


def is_broker_only_group(group: str) -> bool:
    """Whether only the broker itself consumes with a group: its offsets are the broker's state."""
    return group.startswith(SYSTEM_GROUP_PREFIX)
