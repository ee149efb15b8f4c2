"""Archives, seen and released from the command line and from Python."""

from __future__ import annotations

import json

import pytest

from orbitmq.client import Admin, Message, Producer
from orbitmq.embedded import Cluster
from orbitmq.errors import (
    ArchiveConflictError,
    ArchiveMissingError,
    ArchiveRefusedError,
    CommandError,
    TopicRefusedError,
)
from tests.integration.cli.conftest import Run


def test_archives_are_listed_named_when_they_stall_and_released(run: Run, cluster: Cluster) -> None:
    assert "no broker knows an archive" in run("lake", "gates").stdout
    run("topic", "create", "parcels", "-q", "1")
    with Admin(namesrv=cluster.namesrv) as admin:
        opened = admin.archives.open("lake", "parcels", target="/lake/parcels")
        assert sorted(opened) == ["broker-a", "broker-b"]
        with Producer("shop", namesrv=cluster.namesrv) as producer:
            sent = [producer.send(Message("parcels", b"one")) for _ in range(4)]
        at_a = sum(one.queue.broker_name == "broker-a" for one in sent)
        advanced = admin.archives.advance("lake", "broker-a", 1, {0: (0, 1)})
        assert (advanced.marks, advanced.advanced_ms > 0) == ({0: 1}, True)
        with pytest.raises(ArchiveConflictError, match="is at 1 in queue 0"):
            admin.archives.advance("lake", "broker-a", 1, {0: (0, 1)})
        with pytest.raises(ArchiveMissingError):
            admin.archives.advance("nobody", "broker-a", 1, {0: (0, 1)})
        with pytest.raises(ArchiveRefusedError, match="has target '/lake/parcels'"):
            admin.archives.open("lake", "parcels", target="/elsewhere")
        with pytest.raises((ArchiveRefusedError, TopicRefusedError), match="system topic"):
            admin.archives.open("timers", "SCHEDULE_TOPIC_XXXX")

    rows = json.loads(run("lake", "gates", "--json").stdout)

    assert [(row["broker"], row["unarchived"]) for row in rows] == [
        ("broker-a", at_a - 1),
        ("broker-b", 4 - at_a),
    ]
    assert {(row["topic"], row["target"], row["gates"]) for row in rows} == {
        ("parcels", "/lake/parcels", True)
    }
    run("cluster", "health")
    stalled = run("cluster", "health", "--archive-hours-max", "0", code=1).stdout
    assert "archive lake has not advanced for 0 hours" in stalled
    assert "of topic parcels are not archived, the oldest of 20" in stalled
    asked = run("lake", "release", "lake", typed="n\n", code=5).stdout
    assert "release archive lake? 3 messages that it lacks may be deleted" in asked
    assert "broker-a" in run("lake", "release", "lake", "-b", "broker-a", "--yes").stdout
    run("lake", "release", "lake", "--yes")
    assert "no broker knows an archive" in run("lake", "gates").stdout
    run("lake", "release", "lake", "--yes", code=4)


def test_a_broker_that_may_lack_archives_is_told_that_it_has_all(run: Run) -> None:
    told = run("lake", "release", "--unknown", "--broker", "broker-a", "--yes").stdout

    assert "broker broker-a waits only for the archives that it knows" in told
    for words in (["--unknown"], ["lake", "--unknown", "-b", "broker-a"], []):
        result = run("lake", "release", *words, "--yes", code=2)
        assert isinstance(result.exception, CommandError)
