"""The topics that every broker has."""

from __future__ import annotations

from orbitmq.broker.topics.system_topics import system_topics
from orbitmq.model.topics import TopicConfig


def test_system_topics_are_those_of_rocketmq() -> None:
    topics = system_topics("C", "b", trace_topic="RMQ_SYS_TRACE_TOPIC")

    assert {topic.name: (topic.write_queues, topic.permission) for topic in topics} == {
        "TBW102": (8, 7),
        "SELF_TEST_TOPIC": (1, 6),
        "BenchmarkTest": (1024, 6),
        "C": (16, 7),
        "b": (1, 7),
        "OFFSET_MOVED_EVENT": (1, 6),
        "SCHEDULE_TOPIC_XXXX": (18, 6),
        "C_REPLY_TOPIC": (1, 6),
        "rmq_sys_REVIVE_LOG_C": (8, 6),
        "rmq_sys_SYNC_BROKER_MEMBER_b": (1, 1),
        "RMQ_SYS_TRANS_HALF_TOPIC": (1, 6),
        "RMQ_SYS_TRANS_OP_HALF_TOPIC": (1, 6),
        "rmq_sys_wheel_timer": (1, 6),
        "RMQ_SYS_TRACE_TOPIC": (1, 6),
    }
    assert all(topic.read_queues == topic.write_queues for topic in topics)


def test_templates_and_the_trace_topic_are_optional() -> None:
    topics: dict[str, TopicConfig] = {
        topic.name: topic
        for topic in system_topics(
            "C", "b", template_queues=None, cluster_topic_open=False, broker_topic_open=False
        )
    }

    assert "TBW102" not in topics
    assert "RMQ_SYS_TRACE_TOPIC" not in topics
    assert topics["C"].permission == topics["b"].permission == 1
