"""Reading an open store: by key, by tag and by physical offset."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.clock import ManualClock
from orbitmq.errors import StoreError
from orbitmq.store.reading import tag_search
from orbitmq.store.reading.tag_search import TagSearch
from tests.unit.store.stores import message, open_store

TOPIC = "orders"


def test_the_newest_messages_of_a_key_or_unique_key_are_found_oldest_first(
    tmp_path: Path,
) -> None:
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
        assert found("k1") == list(range(1, 29, 3))
        assert found("all", count_max=4) == [26, 27, 28, 29]
        assert found("all", begin_ms=start_ms + 5_000, end_ms=start_ms + 8_999) == [5, 6, 7, 8]
        assert found("none") == []
        assert store.find("others", "k1") == []
        assert found("all", count_max=0) == []


def test_the_newest_messages_of_a_tag_are_found_oldest_first(tmp_path: Path) -> None:
    clock = ManualClock()
    start_ms = clock.now_ms()
    # Files of 300 entries: a search goes through several.
    with open_store(tmp_path, clock=clock, queue_file_bytes=300 * 20) as store:
        for number in range(1000):
            clock._now_ms = start_ms + number
            tag = ("Aa", "BB", "c")[number % 3]
            store.append(message(b"%d" % number, queue_id=number % 4, properties={"TAGS": tag}))
        store.put(message(b"x", topic="others", properties={"TAGS": "Aa"}))

        def found(tag: str, **limits: int) -> list[int]:
            return [int(m.body) for m in store.find_tagged(TOPIC, tag, **limits)]

        assert found("Aa", count_max=3) == [993, 996, 999]
        assert found("BB", count_max=3) == [991, 994, 997]
        assert found("Aa", begin_ms=start_ms + 5, end_ms=start_ms + 12) == [6, 9, 12]
        assert found("Aa", end_ms=start_ms) == [0]
        assert found("none") == found("Aa", count_max=0) == found("Aa", count_max=-1) == []
        assert store.find_tagged("missing", "Aa") == []


def test_a_search_for_a_tag_that_takes_too_long_is_refused(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        for number in range(30):
            store.put(message(queue_id=number % 3, properties={"TAGS": "a" if number else "b"}))

        assert len(list(TagSearch(store, TOPIC, "b", entries_max=30).newest_first(0, 2**62))) == 1
        with pytest.raises(StoreError, match=r"looked at 29 messages.*for a shorter time"):
            list(TagSearch(store, TOPIC, "b", entries_max=29).newest_first(0, 2**62))


def test_a_search_that_reads_too_many_other_messages_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Both have the same hash; 10,000 messages would take seconds.
    monkeypatch.setattr(tag_search, "MISSES_MAX", 20)
    with open_store(tmp_path) as store:
        store.put(message(b"one", properties={"KEYS": "BB", "TAGS": "BB"}))
        for _ in range(20):
            store.put(message(properties={"KEYS": "Aa", "TAGS": "Aa"}))
        assert [m.body for m in store.find(TOPIC, "BB")] == [b"one"]
        assert [m.body for m in store.find_tagged(TOPIC, "BB")] == [b"one"]
        store.put(message(properties={"KEYS": "Aa", "TAGS": "Aa"}))

        for find in (store.find, store.find_tagged):
            with pytest.raises(StoreError, match=r"more than 20 messages.*'BB'.*shorter time"):
                find(TOPIC, "BB")
            assert len(find(TOPIC, "Aa", count_max=5)) == 5


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


def test_messages_read_together_are_those_read_one_by_one(tmp_path: Path) -> None:
    with open_store(tmp_path, index_enable=False) as store:
        receipts = [store.put(message(b"%d" % n * (n % 7 * 90 + 1))) for n in range(60)]
        offsets = [int(receipt.physical_offset) for receipt in receipts]
        wanted = [
            *offsets,
            *offsets[::-3],
            offsets[3] + 4,
            offsets[4],
            -1,
            receipts[-1].end,
            10**12,
        ]

        together = list(store.messages_at(wanted))

        assert together == [store.message_at(offset) for offset in wanted]
        assert together[:60] == [store.message_by_id(receipt.message_id) for receipt in receipts]
