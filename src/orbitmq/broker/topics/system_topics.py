"""Topics that every broker creates at its start, as in RocketMQ."""

from __future__ import annotations

from typing import Final

from orbitmq.model import names
from orbitmq.model.topics import Permission, TopicConfig

_READ_WRITE: Final = Permission.READ | Permission.WRITE
_TEMPLATE: Final = _READ_WRITE | Permission.INHERIT
_DELAY_LEVELS: Final = 18
_REVIVE_QUEUES: Final = 8


def system_topics(
    cluster: str,
    broker: str,
    *,
    template_queues: int | None = 8,
    cluster_topic_open: bool = True,
    broker_topic_open: bool = True,
    trace_topic: str | None = None,
) -> list[TopicConfig]:
    """List the system topics; without `template_queues` there is no template for new topics."""
    topics = [
        _topic(names.SELF_TEST_TOPIC, 1),
        _topic(names.BENCHMARK_TOPIC, 1024),
        _topic(cluster, 16, _TEMPLATE if cluster_topic_open else Permission.INHERIT),
        _topic(broker, 1, _TEMPLATE if broker_topic_open else Permission.INHERIT),
        _topic(names.OFFSET_MOVED_TOPIC, 1),
        _topic(names.SCHEDULE_TOPIC, _DELAY_LEVELS),
        _topic(cluster + names.REPLY_TOPIC_SUFFIX, 1),
        # Compat: RocketMQ 5 stores unacknowledged messages of pop consumers here.
        _topic(f"{names.SYSTEM_TOPIC_PREFIX}REVIVE_LOG_{cluster}", _REVIVE_QUEUES),
        _topic(f"{names.SYSTEM_TOPIC_PREFIX}SYNC_BROKER_MEMBER_{broker}", 1, Permission.INHERIT),
        _topic(names.HALF_TOPIC, 1),
        _topic(names.HALF_DONE_TOPIC, 1),
        _topic(names.TIMER_TOPIC, 1),
    ]
    if template_queues is not None:
        topics.append(_topic(names.TEMPLATE_TOPIC, template_queues, _TEMPLATE))
    if trace_topic is not None:
        topics.append(_topic(trace_topic, 1))
    return topics


def _topic(name: str, queues: int, permission: int = _READ_WRITE) -> TopicConfig:
    return TopicConfig(
        name=name, read_queues=queues, write_queues=queues, permission=int(permission)
    )
