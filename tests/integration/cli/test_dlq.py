"""Dead letters, seen and sent again from the command line."""

from __future__ import annotations

import base64
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from orbitmq.client import Admin, LitePullConsumer, Message, Producer, PushConsumer, Reject
from orbitmq.embedded import Cluster
from tests.integration.cli.conftest import Run
from tests.waiting import wait_until

TIMEOUT_S = 60
BODIES = [b"one", b"two", b"\xff\x00three"]


def letters(run: Run, *arguments: str) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = json.loads(run("dlq", "list", *arguments, "--json").stdout)
    return listed


@pytest.fixture(scope="module")
def billing(cluster: Cluster) -> Cluster:
    """A cluster with a group that has three dead letters, of two causes."""
    consumer = PushConsumer(
        "billing",
        on_message=lambda message: Reject(f"no customer {len(message.body)}"),
        ordered=True,
        consume_from="first",
        namesrv=cluster.namesrv,
    )
    consumer.subscribe("orders")
    with (
        Producer("shop", namesrv=cluster.namesrv) as producer,
        Admin(namesrv=cluster.namesrv) as admin,
    ):
        # On one broker, where they keep their order.
        admin.topics.create("orders", queues=1, broker="broker-a")
        for number, body in enumerate(BODIES):
            producer.send(
                Message("orders", body, tags="paid", keys=[f"k{number}"], properties={"own": "é"})
            )
        with consumer:
            wait_until(
                lambda: (
                    ("billing", 3)
                    in [(one.group, one.letters) for one in admin.dead_letters.counts()]
                ),
                timeout_s=TIMEOUT_S,
                what="dead letters",
            )
    return cluster


def orders(cluster: Cluster, count: int, topic: str = "orders") -> list[Message]:
    """The messages of a topic, as they could be sent on."""
    with LitePullConsumer(
        f"checks-{topic}", namesrv=cluster.namesrv, consume_from="first"
    ) as reader:
        reader.subscribe(topic)
        found: list[Message] = []
        while len(found) < count:
            found += [message.as_message() for message in reader.poll(TIMEOUT_S * 1000)]
    return found


@pytest.mark.usefixtures("billing")
def test_dead_letters_are_listed_by_group_key_time_and_cause(run: Run) -> None:
    (group,) = (row for row in letters(run) if row["group"] == "billing")
    listed = letters(run, "billing")

    assert (group["group"], group["dead_letters"]) == ("billing", 3)
    assert [row["cause"] for row in listed] == ["no customer 3", "no customer 3", "no customer 7"]
    assert {row["topic"] for row in listed} == {"orders"}
    assert [row["keys"] for row in listed] == [["k0"], ["k1"], ["k2"]]
    assert [row["keys"] for row in letters(run, "billing", "--key", "k1")] == [["k1"]]
    by_id = letters(run, "billing", "--key", listed[2]["message_id"])
    assert [row["message_id"] for row in by_id] == [listed[2]["message_id"]]
    assert len(letters(run, "billing", "--cause", "CUSTOMER 3")) == 2
    assert len(letters(run, "billing", "--from", "5m", "-c", "1")) == 1
    none_so_old = run("dlq", "list", "billing", "--until", "5m", code=4).stdout
    assert "matches (see all: orbitmq dlq list billing)" in none_so_old
    nobody = run("dlq", "list", "nobody", code=4).stdout
    assert "nobody has no dead letters (see which groups have some: orbitmq dlq list)" in nobody
    assert "name the group" in str(run("dlq", "list", "--cause", "x", code=1).exception)

    shown = run("dlq", "show", "billing", listed[0]["message_id"]).stdout
    assert "no customer 3" in shown
    assert "one" in shown
    assert "0123" in run("dlq", "show", "billing", "0123", code=4).stderr
    by_place = json.loads(
        shown_json := run("dlq", "show", "billing", listed[0]["message_id"], "--json").stdout
    )
    place = by_place[0]["offset_message_id"]
    assert run("dlq", "show", "billing", place, "--json").stdout == shown_json
    # A message of another topic is no dead letter of this group.
    run("dlq", "show", "nobody", place, code=4)


def test_dead_letters_are_sent_again_after_a_preview(run: Run, billing: Cluster) -> None:
    previewed = run("dlq", "resend", "billing", "--cause", "customer 3", "--preview", "--json")
    assert [row["to"] for row in json.loads(previewed.stdout)] == ["orders", "orders"]
    refused = run("dlq", "resend", "billing", code=5, typed="n\n")
    assert "copies of 3 dead letters" in refused.stdout
    assert "nothing was done" in refused.stdout
    assert len(orders(billing, 3)) == 3

    run("dlq", "resend", "billing", "--key", "k2", "--yes")
    began_s = time.monotonic()
    run("topic", "create", "repairs", "-q", "1", "--broker", "broker-a")
    run("dlq", "resend", "billing", "--to", "repairs", "--rate", "4", "--yes")

    assert time.monotonic() - began_s >= 0.5  # three, a fourth of a second apart
    copies = orders(billing, 3, "repairs")
    assert [copy.body for copy in copies] == BODIES
    assert {copy.tags for copy in copies} == {"paid"}
    assert [dict(copy.properties) for copy in copies] == [{"own": "é"}] * 3
    # They are dead letters still.
    assert len(letters(run, "billing")) == 3
    run("dlq", "resend", "billing", "--key", "nothing", "--yes", code=4)
    for rate in ("nan", "0", "-1"):
        run("dlq", "resend", "billing", "--rate", rate, "--yes", code=1)


def stop_after_two(signal_number: int, cluster: Cluster, *flags: str) -> subprocess.Popen[str]:
    """Resend one a second from a process of its own, and stop it after the second."""
    process = subprocess.Popen(
        [
            str(Path(sys.executable).with_name("orbitmq")),
            *("dlq", "resend", "billing", "--rate", "1", "--yes", "-n", cluster.namesrv, *flags),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    for _ in range(2):
        assert "copy_of=" in process.stdout.readline()
    # It waits for its next second.
    process.send_signal(signal_number)
    process.wait(TIMEOUT_S)
    return process


def test_a_resend_that_was_killed_is_resumed_and_sends_nothing_twice(
    run: Run, billing: Cluster, tmp_path: Path
) -> None:
    run("topic", "create", "resumed", "-q", "1", "--broker", "broker-a")
    flags = ("--to", "resumed", "--progress", str(tmp_path / "progress"))
    with stop_after_two(signal.SIGKILL, billing, *flags):
        pass
    other = run("dlq", "resend", "billing", "--to", "else", *flags[2:], "--yes", code=1)
    assert "to was 'resumed', now 'else'" in str(other.exception)

    again = run("dlq", "resend", "billing", *flags, "--preview")
    assert "k2" in again.stdout
    assert "k1" not in again.stdout
    asked = run("dlq", "resend", "billing", *flags, typed="y\n").stdout
    finished = run("dlq", "resend", "billing", *flags, "--yes")

    assert "copies of 1 dead letter (2 were sent before)" in asked
    assert "nothing is left to send; 3 were sent before" in finished.stderr
    assert [copy.body for copy in orders(billing, 3, "resumed")] == BODIES
    with Admin(namesrv=billing.namesrv) as admin:
        (queue,) = admin.topics.bounds("resumed").values()
    assert queue.max_offset == 3


@pytest.mark.usefixtures("billing")
def test_dead_letters_are_not_sent_to_a_topic_that_does_not_exist(run: Run, tmp_path: Path) -> None:
    run("topic", "create", "mending", "-q", "1", "--broker", "broker-a")
    progress = tmp_path / "progress"

    refused = run("dlq", "resend", "billing", "--to", "mendign", "--progress", str(progress),
                  "--yes", code=4)  # fmt: skip
    run("dlq", "resend", "billing", "--to", "mendign", "--preview", code=4)

    assert "there is no topic 'mendign' (did you mean mending?" in str(refused.exception)
    assert "orbitmq topic create mendign" in str(refused.exception)
    assert "mendign" not in run("topic", "list").stdout
    # The right name can be given with the same file.
    assert progress.read_text() == ""


def test_a_resend_that_is_interrupted_says_what_was_sent(run: Run, billing: Cluster) -> None:
    run("topic", "create", "interrupted", "-q", "1", "--broker", "broker-a")

    with stop_after_two(signal.SIGINT, billing, "--to", "interrupted") as process:
        assert process.stderr is not None
        told = process.stderr.read()

    assert process.returncode == 130
    assert "2 copies were sent, the last one of" in told
    assert "sends them again (next time, give --progress FILE)" in told


def test_dead_letters_that_may_not_be_read_are_an_error_that_says_what_to_do(run: Run) -> None:
    run("topic", "create", "%DLQ%closed", "-q", "1", "--broker", "broker-a")
    run("message", "send", "%DLQ%closed", "a letter")
    run("topic", "permit", "%DLQ%closed", "w")

    refused = run("dlq", "list", "closed", code=1)

    assert "orbitmq topic permit %DLQ%closed rw" in str(refused.exception)
    run("topic", "permit", "%DLQ%closed", "rw")
    assert len(letters(run, "closed")) == 1


def test_an_export_that_fails_leaves_no_file(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "letters.jsonl"

    run("dlq", "export", "billing", "-o", str(file), "-n", "127.0.0.1:1", code=3)

    assert list(tmp_path.glob("letters*")) == []


def test_a_dead_letter_of_unknown_origin_needs_a_topic(run: Run, cluster: Cluster) -> None:
    with Producer("by-hand", namesrv=cluster.namesrv) as producer:
        producer.send(Message("%DLQ%orphans", "whose"))

    failed = run("dlq", "resend", "orphans", "--yes", code=1)

    assert "--to TOPIC" in str(failed.exception)
    run("topic", "create", "found", "-q", "1", "--broker", "broker-a")
    run("dlq", "resend", "orphans", "--to", "found", "--yes")
    assert [copy.body for copy in orders(cluster, 1, "found")] == [b"whose"]


@pytest.mark.usefixtures("billing")
def test_dead_letters_are_exported(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "letters.jsonl"

    told = run("dlq", "export", "billing", "-o", str(file)).stderr

    assert "3 dead letters" in told
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [base64.b64decode(line["body"]) for line in lines] == BODIES
    assert [line["cause"] for line in lines] == [f"no customer {len(body)}" for body in BODIES]
    assert {line["topic"] for line in lines} == {"orders"}
    again = run("dlq", "export", "billing", "-o", str(file), code=1)
    assert "does not exist yet" in str(again.exception)
    (line,) = run("dlq", "export", "billing", "--key", "k0").stdout.splitlines()
    assert json.loads(line)["keys"] == ["k0"]
