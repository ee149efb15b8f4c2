"""`orbitmq sql` without Spark: system tables as they are read, and what is answered at once."""

from __future__ import annotations

import asyncio
import datetime
from typing import Any

import pytest

from orbitmq.client import Admin, Message, Producer, PushConsumer, Reject
from orbitmq.client.aio.admin import Admin as AsyncAdmin
from orbitmq.embedded import Cluster
from orbitmq.errors import TopicMissingError
from orbitmq.pipelines.queries.preparation import PreparedQuery, prepare
from orbitmq.pipelines.queries.statements import statement_of
from tests.integration.cli.conftest import Run
from tests.waiting import wait_until

TIMEOUT_S = 60


@pytest.fixture(scope="module")
def shop(cluster: Cluster) -> Cluster:
    """A cluster with traced messages, dead letters of a group, and one that is not due."""
    consumer = PushConsumer(
        "billing",
        on_message=lambda _: Reject("no customer"),
        consume_from="first",
        namesrv=cluster.namesrv,
        trace=True,
    )
    consumer.subscribe("orders")
    with (
        Producer("shop", namesrv=cluster.namesrv, trace=True) as producer,
        Admin(namesrv=cluster.namesrv) as admin,
    ):
        admin.topics.create("orders", queues=2, broker="broker-a")
        for number in range(3):
            producer.send(Message("orders", b"\xff" * (number + 1), tags="paid", keys=f"k{number}"))
        producer.send(Message("orders", "later", delay=datetime.timedelta(hours=1)))
        with consumer:
            wait_until(
                lambda: [one.letters for one in admin.dead_letters.counts()] == [3],
                timeout_s=TIMEOUT_S,
                what="dead letters",
            )
    # Traces are written when clients end.
    return cluster


def prepared(cluster: Cluster, sql: str) -> PreparedQuery:
    async def run() -> PreparedQuery:
        async with AsyncAdmin(namesrv=cluster.namesrv) as admin:
            return await prepare(statement_of(sql), admin)

    return asyncio.run(run())


def rows(cluster: Cluster, table: str, columns: str = "*") -> list[dict[str, Any]]:
    (made,) = prepared(cluster, f"SELECT {columns} FROM {table}").system_rows
    found: list[dict[str, Any]] = made.rows.to_pylist()
    return found


def test_topics_are_rows_with_their_messages(shop: Cluster) -> None:
    (orders,) = [row for row in rows(shop, "system.topics") if row["topic"] == "orders"]

    assert (orders["brokerName"], orders["readQueues"], orders["writeQueues"]) == ("broker-a", 2, 2)
    assert (orders["permission"], orders["ordered"], orders["messages"]) == ("rw", False, 3)
    assert orders["storeTimestamp"].tzinfo is not None


def test_messages_are_counted_only_if_a_query_asks(shop: Cluster) -> None:
    found = rows(shop, "system.topics", "topic")

    assert {row["messages"] for row in found} == {None}


def test_groups_are_rows_with_their_lag(shop: Cluster) -> None:
    (billing,) = [row for row in rows(shop, "system.groups") if row["group"] == "billing"]

    assert (billing["members"], billing["mayConsume"], billing["inOrder"]) == (0, True, False)
    assert billing["lag"] >= 0


def test_lag_has_a_row_for_each_queue(shop: Cluster) -> None:
    found = [row for row in rows(shop, "system.lag") if row["topic"] == "orders"]

    assert [(row["group"], row["brokerName"], row["queueId"]) for row in found] == [
        ("billing", "broker-a", 0),
        ("billing", "broker-a", 1),
    ]
    assert sum(row["endOffset"] for row in found) == 3
    assert all(row["lag"] == row["endOffset"] - row["committedOffset"] for row in found)


def test_dead_letters_are_rows_with_their_cause(shop: Cluster) -> None:
    found = sorted(rows(shop, "system.dlq"), key=lambda row: str(row["keys"]))

    assert [(row["group"], row["topic"], row["keys"], row["body"]) for row in found] == [
        ("billing", "orders", f"k{number}", b"\xff" * (number + 1)) for number in range(3)
    ]
    assert all("no customer" in row["cause"] for row in found)


def test_messages_that_are_not_due_are_rows(shop: Cluster) -> None:
    (later,) = rows(shop, "system.delayed")

    assert (later["topic"], later["bodyBytes"], later["brokerName"][:7]) == ("orders", 5, "broker-")
    assert later["dueTimestamp"] > later["storeTimestamp"]


def test_steps_of_traced_messages_are_rows(shop: Cluster) -> None:
    found = [row for row in rows(shop, "system.trace") if row["keys"] == "k1"]

    assert {"sent", "consumed"} <= {row["step"] for row in found}
    assert {row["topic"] for row in found} == {"orders"}


def test_only_the_tables_of_a_query_are_read(shop: Cluster) -> None:
    query = prepared(shop, "SELECT queueId FROM orders o JOIN System.`LAG` USING (queueId)")

    assert [one.name for one in query.system_rows] == ["system.lag"]
    assert [one.topic for one in query.topics] == ["orders"]
    assert query.sql == "SELECT queueId FROM orders o JOIN `system.lag` USING (queueId)"
    assert query.columns == ("queueId",)


def test_conditions_are_handed_to_the_source_of_a_topic_that_is_read_once(shop: Cluster) -> None:
    once = prepared(shop, "SELECT * FROM orders WHERE queueId = 1")
    twice = prepared(shop, "SELECT a.keys FROM orders a, orders b WHERE a.queueId = 1")
    clause = prepared(shop, "WITH o AS (SELECT * FROM orders) SELECT * FROM o")

    assert [one.pushes_filters for one in (once, twice, clause)] == [True, False, False]


@pytest.mark.usefixtures("shop")
def test_tables_are_shown_and_described_without_spark(run: Run) -> None:
    shown = run("sql", "SHOW TABLES;", "-o", "csv").stdout.splitlines()
    topic = run("sql", "DESCRIBE orders", "-o", "csv").stdout.splitlines()
    system = run("sql", "describe system.lag", "-o", "csv").stdout.splitlines()

    assert {"orders,topic", "`%DLQ%billing`,topic of a group", "system.lag,system table"} <= {
        *shown
    }
    assert topic[1].startswith("topic,STRING,")
    assert "committedOffset,BIGINT,where the group is" in system


@pytest.mark.usefixtures("shop")
def test_a_misspelt_topic_is_named_before_spark_starts(run: Run) -> None:
    error = run("sql", "SELECT * FROM ordrs", code=4).exception

    assert isinstance(error, TopicMissingError)
    assert error.hint == "did you mean orders?"


@pytest.mark.usefixtures("shop")
def test_flags_that_make_no_sense_together_are_refused(run: Run) -> None:
    run("sql", "SELECT 1", "--local", "--remote", "sc://localhost", code=2)
    run("sql", "--watch", "1", code=2)
    run("sql", "SELECT 1", "--idle", "soon", code=1)
    run("sql", "DELETE FROM orders", code=1)
