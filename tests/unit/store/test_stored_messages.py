"""Reading an open store: by key and by physical offset."""

from __future__ import annotations

from pathlib import Path

from orbitmq.clock import ManualClock
from tests.unit.store.stores import message, open_store

TOPIC = "orders"


def test_messages_are_found_by_each_key_and_by_unique_key_newest_first(tmp_path: Path) -> None:
    clock = ManualClock()
    start_ms = clock.now_ms()
    with open_store(tmp_path, clock=clock) as store:
        for number in range(30):
            clock._now_ms = start_ms + number * 1000
            store.put(
                message(
                    b"%d" % number,
                    properties={"UNIQ_KEY": f"U{number}", "KEYS": f"all k{number % 3}"},
                )
            )

        def found(key: str, **limits: int) -> list[int]:
            return [int(m.body) for m in store.find(TOPIC, key, **limits)]

        assert found("U7") == [7]
        assert found("k1") == list(range(28, 0, -3))
        assert found("all", count_max=4) == [29, 28, 27, 26]
        assert found("all", begin_ms=start_ms + 5_000, end_ms=start_ms + 8_999) == [8, 7, 6, 5]
        assert found("none") == []
        assert store.find("others", "k1") == []
        assert found("all", count_max=0) == []


def test_keys_with_the_same_hash_are_distinguished(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.put(message(b"one", properties={"KEYS": "Aa"}))
        store.put(message(b"two", properties={"KEYS": "BB"}))

        assert [m.body for m in store.find(TOPIC, "Aa", count_max=1)] == [b"one"]
        assert [m.body for m in store.find(TOPIC, "BB", count_max=1)] == [b"two"]


def test_offsets_where_no_message_begins_have_none(tmp_path: Path) -> None:
    with open_store(tmp_path, index_enable=False) as store:
        receipt = store.put(message())

        for offset in (-1, 1, receipt.physical_offset + 4, receipt.end, 10**12):
            assert store.message_at(offset) is None
        assert store.find(TOPIC, "k") == []
