"""`orbitmq cut` of the tail that a real former master had, and the new one does not."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from orbitmq.client import (
    Admin,
    LitePullConsumer,
    Message,
    Producer,
    TransactionProducer,
    TransactionState,
)
from orbitmq.embedded import Cluster
from orbitmq.model import property_names
from orbitmq.protocol.requests.pending import PendingMessage
from orbitmq.store.opening.cut_intent import Cut, cuts
from tests.integration.cli.conftest import Run
from tests.waiting import wait_until

CALL_MS = 60_000
# Where each cluster has its stores, by its name server.
STORES: dict[str, Path] = {}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A group whose first master had messages that the second one lacks."""
    folder = tmp_path_factory.mktemp("cluster")
    options = {"brokerRole": "ASYNC_MASTER"}
    with Cluster(slaves=1, directory=folder, options=options) as cluster:
        for topic in ("orders", "bills"):
            cluster.create_topic(topic, queues=1)
        with producer_of(cluster) as producer:
            producer.send(Message("orders", "kept"))
            cluster.wait_for_slaves()
            cluster.faults.stop_broker("broker-a-slave-1")
            for number in range(3):
                producer.send(Message("orders", f"order {number}", keys=[f"k{number}"], tags="a"))
            producer.send(Message("bills", "at once"))
            producer.send(Message("bills", "in an hour", delay=timedelta(hours=1)))
            producer.send(Message("bills", "level 18", delay_level=18))
            # The producer tries again at the next master.
            twice = Message("orders", "sent by its producer").with_reserved(
                {property_names.UNIQUE_ID: "A" * 32}
            )
            producer.send(twice)
        with (
            TransactionProducer(
                "undecided",
                on_check=lambda _: TransactionState.UNKNOWN,
                namesrv=cluster.namesrv,
                send_timeout_ms=CALL_MS,
            ) as transactions,
            transactions.transaction(Message("orders", "never committed")) as transaction,
        ):
            transaction.leave_open()
        cluster.faults.kill_broker("broker-a")
        cluster.faults.restart_broker("broker-a-slave-1")
        cluster.promote(force=True)
        with producer_of(cluster) as producer:
            producer.send(twice)
        cluster.faults.restart_broker("broker-a")
        cluster.wait_for_slaves()
        STORES[cluster.namesrv] = folder
        yield cluster


def producer_of(cluster: Cluster) -> Producer:
    return Producer(
        "tests",
        namesrv=cluster.namesrv,
        clock=cluster.clock,
        send_timeout_ms=CALL_MS,
        call_timeout_ms=CALL_MS,
    )


@pytest.fixture
def cut(cluster: Cluster, tmp_path: Path) -> Cut:
    """The tail, in a copy of its own: what one test sends, others have to send still."""
    (made,) = cuts(STORES[cluster.namesrv] / "broker-a")
    copy = tmp_path / "store" / "orbitmq" / "cut" / made.saved_path.name
    shutil.copytree(made.saved_path, copy)
    return replace(made, saved_path=copy)


def store_of(cut: Cut) -> str:
    return str(cut.saved_path.parents[2])


def bodies(cluster: Cluster, topic: str, group: str, count: int) -> list[bytes]:
    with LitePullConsumer(
        group, namesrv=cluster.namesrv, clock=cluster.clock, consume_from="first"
    ) as consumer:
        consumer.subscribe(topic)
        found: list[bytes] = []
        for _ in range(600):
            found += [message.body for message in consumer.poll(100)]
            if len(found) >= count:
                break
        return found


def test_a_tail_is_listed_and_its_preview_says_what_is_left_out(cut: Cut, run: Run) -> None:
    (row,) = json.loads(run("cut", "list", store_of(cut), "--json").stdout)
    shown = json.loads(run("cut", "resend", store_of(cut), "--preview", "--json").stdout)
    text = run("cut", "resend", str(cut.saved_path), "--preview").stdout

    assert (row["tail"], row["epoch"], row["begin"]) == (cut.saved_path.name, 1, cut.at)
    assert (row["messages"], row["sent"], row["left_out"]) == (7, 0, 1)
    assert row["first_stored"] <= row["last_stored"]
    counts = {one["topic"]: (one["messages"], one["delayed"]) for one in shown["topics"]}
    assert counts == {"orders": (4, 0), "bills": (3, 2)}
    assert shown["left_out"] == {"half": 1}
    assert "left out: 1 half messages" in text
    assert not (cut.saved_path / "resent").exists()


def test_each_message_is_sent_once_however_often_the_command_runs(
    cluster: Cluster, cut: Cut, run: Run
) -> None:
    words = ("cut", "resend", store_of(cut), "--topic", "orders")

    asked = run(*words, typed="n\n", code=5)
    first = run(*words, "--yes", "--rate", "1000")
    again = run(*words, "--yes")
    (cut.saved_path / "resent").unlink()
    without_memory = run(*words, "--yes", "--rate", "1000")

    assert "send 4 messages" in asked.stdout
    # Their producer had sent one of them itself.
    assert "3 messages sent; 1 were in the cluster already" in first.stderr
    assert "nothing is left to send; 4 messages were sent before" in again.stderr
    assert "0 messages sent; 4 were in the cluster already" in without_memory.stderr
    found = bodies(cluster, "orders", "orders-checked", 5)
    assert sorted(found) == sorted(
        [b"kept", b"sent by its producer", *(b"order %d" % number for number in range(3))]
    )
    with Admin(namesrv=cluster.namesrv, clock=cluster.clock) as admin:
        (copy,) = admin.messages.by_key("orders", "k1")
    assert (copy.tags, copy.body) == ("a", b"order 1")
    assert copy.properties[property_names.CUT_FROM].startswith(f"{cut.saved_path.name}/")


def test_delayed_messages_keep_their_due_time(cluster: Cluster, cut: Cut, run: Run) -> None:
    run("cut", "resend", store_of(cut), cut.saved_path.name, "--topic", "bills", "--yes")

    assert bodies(cluster, "bills", "bills-checked", 1) == [b"at once"]
    master = cluster.broker(cluster.master()).address
    found: list[PendingMessage] = []

    def is_pending() -> bool:
        with Admin(namesrv=cluster.namesrv) as admin:
            found[:] = admin.pending.at(master, topic="bills")
        return bool(found)

    wait_until(is_pending, timeout_s=60, what="a pending message")
    (timed,) = found
    assert timed.due_ms > cluster.clock.now_ms() + 30 * 60_000
    with Admin(namesrv=cluster.namesrv) as admin:
        runtime = admin.brokers.runtime("broker-a")
    # One delayed by level 18, whose queue is 17.
    assert runtime["scheduleMessageOffset_18"].endswith(",1")


def test_nonsense_is_refused_with_what_there_is(cut: Cut, run: Run, tmp_path: Path) -> None:
    store = store_of(cut)

    refused = {
        "no tail": run("cut", "resend", store, "9-00000000000000000000", code=1),
        "no store": run("cut", "resend", str(tmp_path), code=1),
        "no topic": run("cut", "resend", store, "--topic", "order", code=1),
        "rate": run("cut", "resend", store, "--rate", "0", code=1),
        "json": run("cut", "resend", store, "--json", code=2),
    }

    said = {name: str(result.exception) for name, result in refused.items()}
    assert (
        f"there is no tail '9-00000000000000000000' (tails: {cut.saved_path.name})" in said.values()
    )
    assert "storePathRootDir" in said["no store"]
    assert "(topics: bills, orders)" in said["no topic"]
    assert "give 0.1 or more" in said["rate"]
    assert "--preview" in said["json"]
    (tmp_path / "uncut" / "commitlog").mkdir(parents=True)
    assert "nothing was cut" in run("cut", "list", str(tmp_path / "uncut")).output


def test_a_folder_without_a_store_is_not_one_without_a_cut(run: Run, tmp_path: Path) -> None:
    (tmp_path / "stores" / "broker-a" / "commitlog").mkdir(parents=True)

    for command in ("list", "resend"):
        mistyped = run("cut", command, str(tmp_path / "nowhere"), code=1)
        of_stores = run("cut", command, str(tmp_path / "stores"), code=1)

        assert "nowhere is no folder (give the storePathRootDir" in str(mistyped.exception)
        assert f"give one of them: {tmp_path / 'stores' / 'broker-a'})" in str(of_stores.exception)
