"""Open transactions, seen and checked from the command line."""

from __future__ import annotations

import json
import threading

from orbitmq.client import Message, ReceivedMessage, TransactionProducer, TransactionState
from orbitmq.embedded import Cluster
from tests.integration.cli.conftest import Run


def test_open_transactions_are_listed_shown_and_checked(run: Run, cluster: Cluster) -> None:
    asked = threading.Event()

    def on_check(_: ReceivedMessage) -> TransactionState:
        asked.set()
        return TransactionState.UNKNOWN

    assert "no transaction is open" in run("transaction", "list").stdout
    run("topic", "create", "paid", "-q", "1")
    with TransactionProducer("shop", on_check=on_check, namesrv=cluster.namesrv) as producer:
        with producer.transaction(Message("paid", b"order 7", keys="7")) as transaction:
            transaction.leave_open()
        own = transaction.message_id

        (listed,) = json.loads(run("transaction", "list", "--json").stdout)
        assert (listed["transaction"], listed["group"], listed["topic"]) == (own, "shop", "paid")
        assert (listed["checks"], listed["asked"], listed["producers"]) == (0, "", 1)
        checked = json.loads(run("transaction", "check", own, "--json").stdout)

        assert sum(row["asked"] for row in checked) == 1
        assert asked.wait(60)
        (shown,) = json.loads(run("transaction", "show", own, "--json").stdout)
        assert (shown["checks"], shown["asked_client"]) == (1, producer.client_id)
        assert (shown["keys"], shown["body_bytes"]) == ("7", 7)
    checked = json.loads(run("transaction", "check", "--json").stdout)
    assert sum(row["without_producer"] for row in checked) == 1
    run("transaction", "show", "0A0B", code=4)
    run("transaction", "check", "0A0B", code=4)
