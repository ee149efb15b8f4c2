"""What a log says of exactly-once batches, before anything of it is loaded."""

from __future__ import annotations

from pathlib import Path

import msgspec

from orbitmq.broker.exactly_once.known_batches import KnownBatches
from orbitmq.broker.exactly_once.query_states import QueryState
from orbitmq.model.names import QUERIES_TOPIC
from orbitmq.protocol.requests.staged_writes import Confirmed, Part
from orbitmq.store.log.draft import Draft
from orbitmq.store.message_store import MessageStore
from tests.unit.store.stores import LOG_FILE_BYTES, message, open_store


def put(store: MessageStore, query: str, batch: int, *, forgotten: bool = False) -> int:
    """Store a state; returns where its record is."""
    state = QueryState(
        query=query, coordinator="b", decided=batch, batch=batch, forgotten=forgotten
    )
    body = msgspec.json.encode(state)
    return store.put(Draft(topic=QUERIES_TOPIC, body=body)).physical_offset


def batches(known: KnownBatches) -> dict[str, int]:
    return {query: summary.decided for query, summary in known.read().queries.items()}


def test_the_newest_state_of_each_query_is_known(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        known = KnownBatches(store)
        assert batches(known) == {}
        for query, batch in (("a", 1), ("b", 1), ("a", 2), ("c", 7)):
            put(store, query, batch)
        put(store, "c", -1, forgotten=True)
        assert batches(known) == {"a": 2, "b": 1}

        put(store, "b", 2)
        put(store, "a", -1, forgotten=True)

        assert batches(known) == {"b": 2}
        assert known.read().damage == []


def test_what_is_in_the_log_and_not_visible_yet_is_known(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        put(store, "a", 1)
    with open_store(tmp_path, held=True) as store:
        shown = store.visible
        known = KnownBatches(store)
        for batch in (2, 3):
            # The two are in different files of the log.
            store.put(message(bytes(LOG_FILE_BYTES * 2 // 3)))
            put(store, "a", batch)
            put(store, f"b{batch}", 1)

        assert batches(known) == {"a": 3, "b2": 1, "b3": 1}
        assert store.visible == shown

        store.limit_visible(None)
        put(store, "a", 4)
        assert batches(known) == {"a": 4, "b2": 1, "b3": 1}


def test_what_cannot_be_read_is_reported_and_the_rest_is_known(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        damaged = put(store, "a", 1)
        put(store, "b", 1)
        store.put(Draft(topic=QUERIES_TOPIC, body=b"no state"))
        put(store, "c", 1)
        spoil(store, damaged)
    with open_store(tmp_path, held=True) as store:
        known = KnownBatches(store)
        spoil(store, put(store, "b", 2))
        put(store, "d", 1)

        found = known.read()

        assert sorted(found.queries) == ["b", "c", "d"]
        assert len(found.damage) == 3
        assert all("cannot be read" in text for text in found.damage[1:])
        assert known.read() == found


def test_a_state_says_which_batch_each_broker_has_confirmed(tmp_path: Path) -> None:
    state = QueryState(
        query="q",
        coordinator="b",
        batch=3,
        part=Part(writes={"w": 5, "x": 2}, start=0, end=7),
        moved=0,
        decided=3,
        confirmed={"b": Confirmed(3, "three"), "c": Confirmed(2, "two")},
    )
    with open_store(tmp_path) as store:
        store.put(Draft(topic=QUERIES_TOPIC, body=msgspec.json.encode(state)))

        summary = KnownBatches(store).read().queries["q"]

    assert (summary.rows, summary.moved, summary.complete) == (7, False, False)
    assert summary.confirmed == state.confirmed


def spoil(store: MessageStore, physical_offset: int) -> None:
    """Change a byte of the body of a record."""
    record = store.record_at(physical_offset, hidden=True)
    assert record is not None
    file = store.parts.log.file_at(physical_offset)
    assert file is not None
    file.view[physical_offset - file.first_offset + record.index(b'"query"')] ^= 1
