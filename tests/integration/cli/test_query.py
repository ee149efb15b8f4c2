"""Queries that write exactly once, seen and forgotten from the command line."""

from __future__ import annotations

import json
from typing import Any

import pytest

from orbitmq.client.aio.sending.staged_writer import new_write_id
from orbitmq.client.sync.staged_writer import StagedWriter
from orbitmq.embedded import Cluster
from orbitmq.errors import BatchConflictError
from orbitmq.model.queues import MessageQueue
from orbitmq.protocol.requests.staged_writes import BatchDecision, Part, SourceRange
from orbitmq.record.batch import BatchedMessage, encode_batch
from tests.integration.cli.conftest import Run

QUERY = "a5a45027-7bd7-45b6"


def write(cluster: Cluster, batch: int, body: bytes) -> None:
    with StagedWriter(namesrv=cluster.namesrv) as writer:
        queue = MessageQueue(topic="ledger", broker_name="broker-b", queue_id=0)
        write_id = new_write_id()
        packed = encode_batch([BatchedMessage(0, body, b"")])
        staged = writer.stage_async(queue, packed, write_id=write_id, first_sequence=0).result(10)
        part = Part(writes={write_id: 1}, start=staged.start, end=staged.end)
        decision = BatchDecision(
            query=QUERY,
            batch=batch,
            parts={"broker-b": part},
            source=SourceRange(start=f"{body!r} start", end=f"{body!r}"),
            target="ledger",
        )
        writer.commit(decision)


def test_a_query_is_listed_shown_and_forgotten(run: Run, cluster: Cluster) -> None:
    assert "no query" in run("query", "list").stdout
    run("topic", "create", "ledger", "-q", "1")
    write(cluster, 4, b"first")

    (listed,) = json.loads(run("query", "list", "--json").stdout)
    assert listed["query"] == QUERY
    assert (listed["target"], listed["last_batch"], listed["rows"]) == ("ledger", 4, 1)
    assert listed["complete"]
    assert listed["staged_bytes"] > len(b"first")
    shown: list[dict[str, Any]] = json.loads(run("query", "show", QUERY, "--json").stdout)
    assert [(row["broker"], row["decided_batch"], row["moved_batch"]) for row in shown] == [
        ("broker-a", 4, ""),
        ("broker-b", "", 4),
    ]
    with pytest.raises(BatchConflictError, match=f"orbitmq query forget {QUERY}"):
        write(cluster, 4, b"a restored checkpoint")

    assert "nothing was done" in run("query", "forget", QUERY, code=5, typed="n\n").stdout
    assert "broker-a, broker-b" in run("query", "forget", QUERY, "--yes").stdout

    run("query", "show", QUERY, code=4)
    run("query", "forget", QUERY, "--yes", code=4)
    assert run("kv", "list", "ORBITMQ_COORDINATORS", "--json").stdout.strip() in ("{}", "[]")
    write(cluster, 4, b"again")
    tailed = run("message", "tail", "ledger").stdout
    assert [line.split()[-1] for line in tailed.splitlines()] == ["first", "again"]
