"""Who takes which queue, and the offset file of broadcasting, as Java's client has them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from orbitmq.client.core.consuming.local_offsets import decode_offsets
from orbitmq.model.queues import MessageQueue
from tests.compat.allocation_cases import STRATEGIES, chosen

RECORDED: dict[str, Any] = json.loads(
    (Path(__file__).parent / "allocations-5.5.0.json").read_text()
)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_an_allocation_gives_what_java_gives(strategy: str) -> None:
    found = [
        (case, theirs)
        for case, theirs in zip(RECORDED["cases"], RECORDED["chosen"], strict=True)
        if case["strategy"] == strategy
    ]

    assert len(found) >= 10
    for case, theirs in found:
        assert chosen(case) == theirs


def test_an_offset_file_that_java_wrote_is_read() -> None:
    assert decode_offsets(RECORDED["offset_file"].encode()) == {
        MessageQueue(topic=topic, broker_name=broker, queue_id=number): offset
        for topic, broker, number, offset in RECORDED["offsets"]
    }
