"""A read-only store takes no other record for that of a damaged queue entry."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.clock import ManualClock
from orbitmq.errors import StoreDamagedError
from orbitmq.store.index.consume_queue import ENTRY_BYTES
from orbitmq.store.readonly.readonly_store import ReadOnlyStore
from tests.unit.store.stores import message, open_store

TOPIC = "orders"
COUNT = 16


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Messages of three queues, all of one size, one per second."""
    clock = ManualClock(0)
    with open_store(tmp_path, clock=clock) as store:
        for number in range(COUNT):
            clock._now_ms = 1000 * (number + 1)
            store.put(message())
            store.put(message(queue_id=1))
            store.put(message(topic="others"))
    return tmp_path


def _lead(root: Path, number: int, to: tuple[str, int, int]) -> None:
    """Let an entry of the first queue lead to the record of another."""
    topic, queue_id, other = to
    content = (root / f"consumequeue/{topic}/{queue_id}/{0:020d}").read_bytes()
    with (root / f"consumequeue/{TOPIC}/0/{0:020d}").open("r+b") as file:
        file.seek(number * ENTRY_BYTES)
        file.write(content[other * ENTRY_BYTES : (other + 1) * ENTRY_BYTES])


@pytest.mark.parametrize(
    ("to", "reason"),
    [
        (("others", 0, 7), "its topic is 'others'"),
        ((TOPIC, 1, 7), "its queue is 1"),
        ((TOPIC, 0, 12), "it is that of message 12"),
    ],
)
def test_the_record_of_another_message_is_reported(
    root: Path, to: tuple[str, int, int], reason: str
) -> None:
    _lead(root, 7, to)

    with ReadOnlyStore(root) as store:
        assert len(store.read(TOPIC, 0, 0, 7)) == 7
        with pytest.raises(StoreDamagedError, match=f"entry 7 of queue 0 .*{reason}"):
            store.read(TOPIC, 0, 7, 1)
        with pytest.raises(StoreDamagedError, match=f"entry 7 of queue 0 .*{reason}"):
            store.read(TOPIC, 0, 0, COUNT)
