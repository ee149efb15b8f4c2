"""`orbitmq cut resend` of messages that are easily taken for others, or cannot be sent."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import pytest

from orbitmq.client import Admin, Message, Producer
from orbitmq.disk import PRIVATE
from orbitmq.embedded import Cluster
from orbitmq.model import property_names
from orbitmq.model.names import SCHEDULE_TOPIC, TIMER_TOPIC
from orbitmq.store.opening.cut_intent import CutIntent, cut_folder, saved_name
from orbitmq.store.opening.cut_tail import save_tail
from tests.integration.cli.conftest import Run
from tests.unit.store.stores import message, open_store

ID = "A" * 32
_LOG_FILE_BYTES = 1 << 20

Stored = tuple[str, bytes, Mapping[str, object]]


def make_tail(root: Path, stored: list[Stored]) -> str:
    """A store whose log was cut, with these topics, bodies and properties in the tail."""
    with open_store(root / "log", log_file_bytes=_LOG_FILE_BYTES) as store:
        for topic, body, properties in stored:
            store.append(message(body, topic=topic, properties=dict(properties)))
        store.flush()
        folder = cut_folder(root / "store") / saved_name(CutIntent(1, 0), 1)
        folder.parent.mkdir(parents=True)
        save_tail(store.parts.log, 0, store.log_end, folder, store_ms=0, modes=PRIVATE)
    return str(root / "store")


def delayed(topic: str, unique_id: str = ID) -> Mapping[str, object]:
    return {
        property_names.UNIQUE_ID: unique_id,
        property_names.REAL_TOPIC: topic,
        property_names.REAL_QUEUE_ID: 0,
        property_names.DELAY_LEVEL: 18,
    }


def delivered(topic: str, unique_id: str = ID) -> Mapping[str, object]:
    return {property_names.UNIQUE_ID: unique_id, property_names.REAL_TOPIC: topic}


def preview(run: Run, store: str) -> tuple[dict[str, int], dict[str, int]]:
    """What would be sent by topic, and what is left out by reason."""
    shown = json.loads(run("cut", "resend", store, "--preview", "--json").stdout)
    return {row["topic"]: row["messages"] for row in shown["topics"]}, shown["left_out"]


def test_a_message_that_was_sent_on_to_another_topic_is_sent(run: Run, tmp_path: Path) -> None:
    # Its program received it after a delay, and sent it on as it was.
    store = make_tail(tmp_path, [("bills", b"on", delivered("orders"))])

    assert preview(run, store) == ({"bills": 1}, {})


def test_a_message_that_is_delayed_again_after_its_delivery_is_sent(
    run: Run, tmp_path: Path
) -> None:
    lives: list[Stored] = [
        (SCHEDULE_TOPIC, b"m", delayed("orders")),
        ("orders", b"m", delivered("orders")),
        (SCHEDULE_TOPIC, b"m", delayed("orders")),
    ]

    assert preview(run, make_tail(tmp_path / "again", lives)) == ({"orders": 2}, {"delivered": 1})
    assert preview(run, make_tail(tmp_path / "once", lives[:2])) == (
        {"orders": 1},
        {"delivered": 1},
    )


def test_messages_of_two_topics_with_one_id_are_not_taken_for_each_other(
    run: Run, tmp_path: Path
) -> None:
    store = make_tail(
        tmp_path,
        [
            (SCHEDULE_TOPIC, b"m", delayed("orders")),
            (SCHEDULE_TOPIC, b"m", delayed("bills")),
            ("copies", b"m", {property_names.UNIQUE_ID: ID}),
        ],
    )

    assert preview(run, store) == ({"orders": 1, "bills": 1, "copies": 1}, {})


@pytest.mark.parametrize("kind", [SCHEDULE_TOPIC, TIMER_TOPIC])
def test_a_delayed_message_that_its_producer_sent_again_is_not_sent_twice(
    cluster: Cluster, run: Run, tmp_path: Path, kind: str
) -> None:
    topic = f"twice-{kind}"
    cluster.create_topic(topic, queues=1)
    is_timed = kind == TIMER_TOPIC
    again = Message(
        topic,
        b"m",
        delay=timedelta(hours=1) if is_timed else None,
        delay_level=0 if is_timed else 18,
    ).with_reserved({property_names.UNIQUE_ID: ID})
    with Producer("tests", namesrv=cluster.namesrv) as producer:
        producer.send(again)
    timer = {property_names.TIMER_DUE_MS: cluster.clock.now_ms() + 3_600_000} if is_timed else {}
    store = make_tail(tmp_path, [(kind, b"m", {**delayed(topic), **timer})])

    sent = run("cut", "resend", store, "--yes")

    assert "0 messages sent; 1 were in the cluster already" in sent.stderr
    with Admin(namesrv=cluster.namesrv) as admin:
        assert len(admin.messages.by_unique_id(kind, ID)) == 1


def test_a_message_that_cannot_be_sent_does_not_hold_up_those_behind_it(
    cluster: Cluster, run: Run, tmp_path: Path
) -> None:
    cluster.create_topic("full", queues=1)
    room = 32767 - 40
    store = make_tail(
        tmp_path, [("full", b"large", {"p": "x" * room}), ("full", b"small", {"p": "x"})]
    )

    first = run("cut", "resend", store, "--yes", code=1)
    again = run("cut", "resend", store, "--yes", code=1)

    assert "not sent: full 0: " in first.stderr
    assert "1 message sent; 1 were refused" in first.stderr
    assert "0 messages sent; 1 were refused" in again.stderr
    assert cluster.message_count("full") == 1
