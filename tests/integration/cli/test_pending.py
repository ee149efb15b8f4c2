"""Messages that are not due yet, from the command line."""

from __future__ import annotations

import json
from datetime import timedelta

from orbitmq.client import Message, Producer
from orbitmq.embedded import Cluster
from tests.integration.cli.conftest import Run


def test_pending_messages_are_listed_counted_recalled_and_brought_forward(
    run: Run, cluster: Cluster
) -> None:
    run("topic", "create", "later", "-q", "1")
    assert run("message", "pending", "list", "--json").stdout.strip() == "[]"
    with Producer("later", namesrv=cluster.namesrv) as producer:
        ids = [
            producer.send(
                Message("later", f"m{number}", delay=timedelta(minutes=9 - number))
            ).message_id
            for number in range(3)
        ]

    listed = json.loads(run("message", "pending", "list", "--json").stdout)
    assert [row["message_id"] for row in listed] == ids[::-1]
    counted = json.loads(run("message", "pending", "count", "--by", "day", "--json").stdout)
    assert sum(row["messages"] for row in counted) == 3

    assert f"recalled {ids[0]}" in run("message", "pending", "recall", ids[0]).stdout
    assert f"delivered {ids[1]}" in run("message", "pending", "deliver", ids[1]).stdout

    left = json.loads(run("message", "pending", "list", "-t", "later", "--json").stdout)
    assert [row["message_id"] for row in left] == [ids[2]]
    assert "m1" in run("message", "tail", "later").stdout
    run("message", "pending", "recall", ids[0], code=4)
