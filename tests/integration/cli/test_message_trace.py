"""`orbitmq message trace`, and mqadmin's name for it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from orbitmq.client import Admin, Message, Producer
from orbitmq.embedded import Cluster
from orbitmq.model.names import TRACE_TOPIC
from tests.integration.cli.conftest import Run


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    options = {"traceTopicEnable": "true", "autoCreateTopicEnable": "false"}
    with Cluster(in_memory=True, options=options) as cluster:
        with Admin(namesrv=cluster.namesrv) as admin:
            admin.topics.create("orders", queues=1)
        yield cluster


def sent(cluster: Cluster, *messages: Message, **options: Any) -> list[str]:
    with Producer("shop", namesrv=cluster.namesrv, **options) as producer:
        return [producer.send(message).message_id for message in messages]


def test_the_journey_of_a_message_is_shown(cluster: Cluster, run: Run) -> None:
    (message_id,) = sent(cluster, Message("orders", b"x", keys="parcel-7", tags="t"), trace=True)

    shown = run("message", "trace", message_id).stdout
    assert run("queryMsgTraceById", "-i", message_id).stdout == shown
    assert f"message {message_id}" in shown
    assert "topic=orders  tags=t  keys=parcel-7  bytes=1" in shown
    for part in ("sent", "shop", "127.0.0.1", "ok"):
        assert part in shown

    (found,) = json.loads(run("message", "trace", "parcel-7", "--json").stdout)["messages"]
    assert (found["message_id"], found["topic"]) == (message_id, "orders")
    assert [step["step"] for step in found["steps"]] == ["sent"]


def test_what_is_malformed_is_named(cluster: Cluster, run: Run) -> None:
    (message_id,) = sent(cluster, Message("orders", b"x"), trace=True)
    sent(cluster, Message(TRACE_TOPIC, b"Pub\x01\x1b[2J\x02Poem\x02", keys=message_id))

    result = run("message", "trace", message_id)

    assert "2 parts of the traces are malformed" in result.stderr
    assert r"Pub\x01\x1b[2J" in result.stderr
    assert "\x1b[2J" not in result.output


def test_a_limit_that_was_reached_is_told(cluster: Cluster, run: Run) -> None:
    messages = [Message("orders", b"x", keys="often") for _ in range(3)]
    sent(cluster, *messages, trace=True, trace_batch_size=1)

    assert "there may be more" in run("message", "trace", "often", "-c", "2").stderr
    assert "there may be more" not in run("message", "trace", "often").stderr


def test_a_message_without_traces_and_a_missing_topic_say_what_to_do(
    cluster: Cluster, run: Run
) -> None:
    (untraced,) = sent(cluster, Message("orders", b"x"))

    assert "trace=True" in str(run("message", "trace", untraced, code=4).exception)
    missing = run("message", "trace", untraced, "--trace-topic", "elsewhere", code=4)
    assert "orbitmq topic create elsewhere" in str(missing.exception)
