"""Messages that are not due yet, from the command line."""

from __future__ import annotations

import json
from datetime import datetime, timedelta

import pytest

from orbitmq.cli.moments import as_datetime
from orbitmq.client import Message, Producer
from orbitmq.clock import SystemClock
from orbitmq.embedded import Cluster
from tests.integration.cli.conftest import Run


def test_pending_messages_are_listed_counted_recalled_and_brought_forward(
    run: Run, cluster: Cluster
) -> None:
    run("topic", "create", "later", "-q", "1")
    assert run("message", "pending", "list", "-t", "later", "--json").stdout.strip() == "[]"
    with Producer("later", namesrv=cluster.namesrv) as producer:
        ids = [
            producer.send(
                Message("later", f"m{number}", delay=timedelta(minutes=9 - number))
            ).message_id
            for number in range(3)
        ]

    listed = json.loads(run("message", "pending", "list", "-t", "later", "--json").stdout)
    assert [row["message_id"] for row in listed] == ids[::-1]
    counted = run("message", "pending", "count", "-t", "later", "--by", "day", "--json").stdout
    assert sum(row["messages"] for row in json.loads(counted)) == 3

    assert f"recalled {ids[0]}" in run("message", "pending", "recall", ids[0]).stdout
    assert f"delivered {ids[1]}" in run("message", "pending", "deliver", ids[1]).stdout

    left = json.loads(run("message", "pending", "list", "-t", "later", "--json").stdout)
    assert [row["message_id"] for row in left] == [ids[2]]
    assert "m1" in run("message", "tail", "later").stdout
    run("message", "pending", "recall", ids[0], code=4)
    run("message", "pending", "deliver", ids[1], code=4)


def test_pending_messages_are_chosen_by_topic_and_due_time(run: Run, cluster: Cluster) -> None:
    def pending(*options: str) -> int:
        listed = run("message", "pending", "list", "--json", *options).stdout
        counted = run("message", "pending", "count", "--json", "--by", "minute", *options).stdout
        assert sum(row["messages"] for row in json.loads(counted)) == len(json.loads(listed))
        return len(json.loads(listed))

    before = pending()
    for name in ("soon", "late"):
        run("topic", "create", name, "-q", "1")
    with Producer("later", namesrv=cluster.namesrv) as producer:
        for hours in (25, 30, 40):
            for name in ("soon", "late"):
                producer.send(Message(name, f"{name}{hours}", delay=timedelta(hours=hours)))

    assert pending() == before + 6
    assert pending("-t", "soon") == 3
    assert pending("--due-from", "26h", "--due-until", "2d") == 4
    run("message", "pending", "recall", "-t", "soon", "--due-until", "26h", "--yes")
    assert pending("-t", "soon") == 2
    run("message", "pending", "deliver", "-t", "late", "--yes")
    assert pending("-t", "late") == 0
    for hours in (25, 30, 40):
        assert f"late{hours}" in run("message", "tail", "late").stdout
    assert pending() == before + 2
    run("message", "pending", "deliver", "--yes", code=1)
    none = run("message", "pending", "recall", "-t", "late", code=4)
    assert "no pending message matches" in str(none.exception)


@pytest.mark.parametrize("command", ["list", "count", "recall", "deliver"])
def test_a_due_range_that_ends_before_it_begins_is_a_wrong_command(run: Run, command: str) -> None:
    reversed_range = ("--due-from", "2h", "--due-until", "1h")

    refused = run("message", "pending", command, *reversed_range, code=2)

    assert "--due-from 2h is after --due-until 1h" in str(refused.exception)


@pytest.mark.parametrize("command", ["list", "count", "recall", "deliver"])
def test_pending_messages_of_a_misspelt_topic_get_the_nearest_name(run: Run, command: str) -> None:
    run("topic", "create", "reminders", "-q", "1")

    refused = run("message", "pending", command, "--topic", "reminderz", code=4)

    assert "there is no topic 'reminderz' (did you mean reminders?" in str(refused.exception)


def test_messages_that_wait_for_a_deleted_topic_are_listed(run: Run, cluster: Cluster) -> None:
    run("topic", "create", "abandoned", "-q", "1")
    with Producer("later", namesrv=cluster.namesrv) as producer:
        sent = producer.send(Message("abandoned", "waits", delay=timedelta(hours=1)))
    run("topic", "delete", "abandoned", "--yes")

    listed = json.loads(run("message", "pending", "list", "-t", "abandoned", "--json").stdout)

    assert [row["message_id"] for row in listed] == [sent.message_id]


def test_a_message_pending_at_two_brokers_is_recalled_and_delivered_at_both(
    run: Run, cluster: Cluster
) -> None:
    run("topic", "create", "doubled", "-q", "1")
    with Producer("later", namesrv=cluster.namesrv) as producer:
        for name in ("back", "now"):
            # As after a send that timed out and was tried again at the other broker.
            message = Message("doubled", name, delay=timedelta(hours=1))
            for queue in producer.queues("doubled"):
                producer.send(message.with_reserved({"UNIQ_KEY": name}), queue=queue)

    recalled = run("message", "pending", "recall", "back", "back").stdout
    delivered = run("message", "pending", "deliver", "now", "now").stdout

    assert recalled.count("recalled back") == delivered.count("delivered now") == 2
    assert run("message", "pending", "list", "-t", "doubled", "--json").stdout.strip() == "[]"
    assert run("message", "tail", "doubled").stdout.count("now") == 2


def test_a_message_is_sent_with_a_due_time_and_its_receipt_takes_it_back(
    run: Run, cluster: Cluster
) -> None:
    run("topic", "create", "alarms", "-q", "1", "--broker", "broker-a")
    now = as_datetime(SystemClock().now_ms())
    in_three_hours = now + timedelta(hours=3)

    sent = [
        json.loads(run("message", "send", "alarms", "ring", *flags, "--json").stdout)
        for flags in (
            ("--delay", "90m"),
            ("--deliver-at", "2h"),
            ("--deliver-at", in_three_hours.isoformat()),
        )
    ]

    listed = json.loads(run("message", "pending", "list", "-t", "alarms", "--json").stdout)
    assert [row["message_id"] for row in listed] == [one["message_id"] for one in sent]
    due = [datetime.fromisoformat(row["due"]) for row in listed]
    assert now + timedelta(minutes=90) <= due[0] < now + timedelta(minutes=100)
    assert now + timedelta(hours=2) <= due[1] < now + timedelta(minutes=130)
    assert due[2] == in_three_hours
    with Producer("later", namesrv=cluster.namesrv) as producer:
        assert producer.recall(sent[0]["recall_handle"]) == sent[0]["message_id"]
    at_once = run("message", "send", "alarms", "now").stdout
    assert "recall_handle" not in at_once


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (("--delay", "1h", "--deliver-at", "2h"), "--delay and --deliver-at"),
        (("--delay", "1h", "--delay-level", "3"), "--delay-level and --delay"),
        (("--deliver-at", "1h", "--delay-level", "3"), "--delay-level and --deliver-at"),
    ],
)
def test_a_message_has_one_delay_only(run: Run, flags: tuple[str, ...], named: str) -> None:
    refused = run("message", "send", "alarms", "ring", *flags, code=2)

    assert f"{named} exclude each other" in str(refused.exception)
