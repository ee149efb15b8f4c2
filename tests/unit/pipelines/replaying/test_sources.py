"""What a replay reads: the texts that name sources, and those that are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.errors import NameRuleError, OrbitError, SettingsError
from orbitmq.pipelines.replaying.sources import (
    StoreFiles,
    check_target,
    parse_source,
    source_text,
)


def test_a_text_names_a_topic_dead_letters_or_store_files(tmp_path: Path) -> None:
    topic = parse_source("orders", "", {})
    letters = parse_source("dlq:billing", "", {})
    files = parse_source(f"store:{tmp_path}", "orders", {})
    dead_files = parse_source(f"store:{tmp_path}", "%DLQ%billing", {})

    assert (topic.topic, topic.has_queues, topic.name) == ("orders", True, "topic orders")
    assert (letters.topic, letters.has_queues) == ("%DLQ%billing", False)
    assert letters.name == "dead letters of group billing"
    assert files == StoreFiles(tmp_path.resolve(), "orders")
    assert (files.has_queues, dead_files.has_queues) == (True, False)


def test_a_folder_is_the_same_source_however_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    assert source_text("store:.") == source_text(f"store:{tmp_path}")
    assert source_text("orders") == "orders"
    assert source_text("dlq:billing") == "dlq:billing"


@pytest.mark.parametrize(
    ("text", "topic", "reason"),
    [
        ("%RETRY%billing", "", "a group is retrying"),
        ("SCHEDULE_TOPIC_XXXX", "", "still to be delivered"),
        ("rmq_sys_wheel_timer", "", "still to be delivered"),
        ("RMQ_SYS_TRANS_HALF_TOPIC", "", "is a system topic"),
        ("rmq_sys_orbitmq_staging", "", "is a system topic"),
        ("%DLQ%billing", "", "write dlq:billing"),
        ("dql:billing", "", "did you mean dlq"),
        ("stores:/data", "", "did you mean store"),
        ("kafka:orders", "", "there are no sources 'kafka'"),
        ("orders", "parcels", "--topic parcels is for store files"),
        ("dlq:billing", "parcels", "--topic parcels is for store files"),
        ("store:.", "", "has many topics"),
        ("store:/nowhere", "orders", "/nowhere is not a folder"),
        ("store:.", "%RETRY%billing", "a group is retrying"),
    ],
)
def test_a_source_that_cannot_be_replayed_is_refused_with_the_reason(
    text: str, topic: str, reason: str
) -> None:
    with pytest.raises(SettingsError, match=reason):
        parse_source(text, topic, {})


@pytest.mark.parametrize("text", ["", "or ders", "dlq:", "dlq:a b"])
def test_a_name_that_none_can_have_is_refused(text: str) -> None:
    with pytest.raises(NameRuleError):
        parse_source(text, "", {})


@pytest.mark.parametrize("topic", ["%RETRY%g", "%DLQ%g", "SCHEDULE_TOPIC_XXXX", "a b"])
def test_nothing_is_replayed_into_topics_of_brokers(topic: str) -> None:
    with pytest.raises(OrbitError):
        check_target(topic)
