"""Commands while a broker is missing: what they show is marked as incomplete."""

from __future__ import annotations

import json

import pytest

from orbitmq.embedded import Cluster
from orbitmq.errors import ClusterMissingError, TopicBrokersMissingError
from tests.integration.cli.conftest import Run


@pytest.fixture
def half(cluster: Cluster, run: Run) -> Run:
    """Two topics, one of them on broker-b alone, which is killed."""
    run("topic", "create", "orders", "-q", "2")
    run("topic", "create", "lines", "-q", "2", "--broker", "broker-b")
    run("group", "create", "billing")
    for _ in range(4):
        run("message", "send", "orders", "hello", "--keys", "k")
    cluster.faults.kill_broker("broker-b")
    return run


def test_commands_say_which_broker_is_missing_until_it_is_forgotten(half: Run) -> None:
    warning = "warning: broker broker-b is missing since 20"
    for words in (
        "topic list",
        "topic stats orders",
        "topic groups orders",
        "message tail orders",
        "message find orders --key k",
        "message find orders --from 1h",
        "offset show billing orders",
        "offset reset billing orders --to earliest --dry-run",
        "group lag billing",
        "group list",
    ):
        result = half(*words.split())
        assert warning in result.stderr, words
        assert "broker-b" not in result.stdout, words

    listed = json.loads(half("cluster", "list", "--json").stdout)
    described = json.loads(half("topic", "show", "orders", "--json").stdout)
    for found in (listed, described):
        assert [(row["broker"], bool(row["missing_since"])) for row in found] == [
            ("broker-a", False),
            ("broker-b", True),
        ]
    assert isinstance(half("topic", "show", "lines", code=1).exception, TopicBrokersMissingError)

    assert "nothing was done" in half("cluster", "forget", "broker-b", code=5, typed="n\n").stdout
    assert "broker-b is forgotten" in half("cluster", "forget", "broker-b", "-y").stdout
    assert isinstance(
        half("cluster", "forget", "broker-b", "-y", code=4).exception, ClusterMissingError
    )
    assert half("topic", "stats", "orders").stderr == ""
