"""From where on the log waits for archives: by their marks and the queues of a real store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitmq.broker.archives.archive_gate import ArchiveGate
from orbitmq.broker.archives.archive_table import ArchiveTable
from orbitmq.clock import ManualClock
from orbitmq.protocol.requests.archives import MarkMove
from orbitmq.store.log.draft import Draft
from orbitmq.store.message_store import MessageStore
from tests.unit.store.stores import open_store

T0 = 1_700_000_000_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(T0)


@pytest.fixture
def store(tmp_path: Path, clock: ManualClock) -> Iterator[MessageStore]:
    with open_store(tmp_path, clock=clock) as store:
        yield store


@pytest.fixture
async def table(tmp_path: Path, clock: ManualClock) -> ArchiveTable:
    table = ArchiveTable(tmp_path / "config", tmp_path / "orbitmq", clock=clock)
    await table.load()
    return table


@pytest.fixture
def gate(table: ArchiveTable, store: MessageStore) -> ArchiveGate:
    return ArchiveGate(table, store)


async def open_in(
    table: ArchiveTable, name: str = "lake", topic: str = "orders", *, gates: bool = True
) -> None:
    await table.open(name, topic=topic, gates=gates, target="", life_from=0, starts=dict)


async def advance(table: ArchiveTable, queue_id: int, mark: int, name: str = "lake") -> None:
    archive = table.require(name)
    move = MarkMove(queue_id, archive.mark(queue_id), mark)
    await table.advance(name, archive.life, [move], {queue_id: mark})


def put(store: MessageStore, topic: str = "orders", queue_id: int = 0, body: bytes = b"x") -> int:
    return store.put(Draft(topic=topic, queue_id=queue_id, body=body)).physical_offset


async def test_the_log_waits_for_the_first_message_that_an_archive_lacks(
    store: MessageStore, table: ArchiveTable, gate: ArchiveGate
) -> None:
    await open_in(table)
    empty = gate()
    places = [put(store) for _ in range(3)]

    before = gate()
    await advance(table, 0, 2)
    after = gate()
    await advance(table, 0, 3)

    assert empty is None
    assert before is not None
    assert before.keep_from == places[0]
    assert "archive 'lake' of topic 'orders', which is at offset 0 of queue 0" in before.holder
    assert after is not None
    assert after.keep_from == places[2]
    assert "orbitmq lake release lake" in after.hint
    assert gate() is None


async def test_only_queues_of_the_archived_topic_count(
    store: MessageStore, table: ArchiveTable, gate: ArchiveGate
) -> None:
    await open_in(table)
    put(store, "SCHEDULE_TOPIC_XXXX")
    put(store, "%RETRY%g")
    put(store, "other")
    place = put(store, queue_id=3)
    put(store)

    found = gate()

    assert found is not None
    assert found.keep_from == place


async def test_a_queue_that_is_new_is_not_archived(
    store: MessageStore, table: ArchiveTable, gate: ArchiveGate
) -> None:
    await open_in(table)
    put(store)
    await advance(table, 0, 1)
    place = put(store, queue_id=7)

    found = gate()

    assert found is not None
    assert found.keep_from == place


async def test_the_archive_that_is_furthest_behind_is_named(
    store: MessageStore, table: ArchiveTable, gate: ArchiveGate
) -> None:
    first, _ = put(store, "orders"), put(store, "bills")
    await open_in(table, "lake")
    await open_in(table, "second")
    await open_in(table, "bills", "bills")
    await advance(table, 0, 1, "second")

    found = gate()

    assert found is not None
    assert (found.keep_from, "'lake'" in found.holder) == (first, True)


async def test_an_archive_that_does_not_gate_keeps_nothing_and_is_measured(
    store: MessageStore, table: ArchiveTable, gate: ArchiveGate
) -> None:
    await open_in(table, gates=False)
    put(store)

    assert gate() is None
    assert gate.figures()["lake"].unarchived_messages == 1


async def test_a_broker_that_may_lack_archives_keeps_everything(
    store: MessageStore, gate: ArchiveGate, tmp_path: Path
) -> None:
    put(store)
    promoted = ArchiveTable(tmp_path / "new", tmp_path / "own", clock=ManualClock())
    await promoted.load(is_newly_promoted=True)

    found = ArchiveGate(promoted, store)()

    assert gate() is None
    assert found is not None
    assert found.keep_from == 0
    assert "promoted before it had" in found.holder
    assert "release --unknown" in found.hint


async def test_what_is_left_to_do_is_measured(
    store: MessageStore, table: ArchiveTable, gate: ArchiveGate, clock: ManualClock
) -> None:
    await open_in(table)
    put(store)
    await clock.advance(1000)
    second = put(store)
    put(store, queue_id=1)
    await advance(table, 0, 1)

    figures = gate.figures()["lake"]

    assert figures.unarchived_messages == 2
    assert figures.held_log_bytes == store.log_end - second
    assert figures.oldest_ms == T0 + 1000
    assert (figures.held_files, figures.missed_messages) == (0, 0)


async def test_a_topic_that_was_created_again_waits_from_its_first_message(
    store: MessageStore, table: ArchiveTable, gate: ArchiveGate
) -> None:
    await open_in(table)
    put(store)
    put(store)
    await advance(table, 0, 2)
    gate()

    await table.end_life("orders")
    store.delete_topic("orders")
    await table.note_deletions(store.deleted_topics())
    gone = gate()
    place = put(store)

    found = gate()
    assert gone is None
    assert found is not None
    assert found.keep_from == place


async def test_marks_of_a_life_that_the_store_knows_to_be_over_do_not_count(
    store: MessageStore, table: ArchiveTable, gate: ArchiveGate
) -> None:
    await open_in(table)
    for _ in range(3):
        put(store)
    await advance(table, 0, 3)
    # As a promoted slave's store learns it from the log, without the table.
    store.delete_topic("orders")
    place = put(store)

    found = gate()

    assert found is not None
    assert found.keep_from == place
    assert gate.figures()["lake"].unarchived_messages == 1


async def test_messages_that_are_gone_before_they_were_archived_are_counted(
    store: MessageStore, table: ArchiveTable, gate: ArchiveGate
) -> None:
    await open_in(table)
    body = bytes(30_000)
    places = [put(store, body=body) for _ in range(6)]
    store.flush()
    log_start = store.parts.log.delete_first()
    store.parts.queues.raise_starts(log_start)
    gone = sum(place < log_start for place in places)

    found = gate()

    assert found is not None
    assert found.keep_from == places[gone]
    assert gate.figures()["lake"].missed_messages == gone > 0


@pytest.mark.parametrize("shift", [8, 1 << 14, 1 << 17])
async def test_a_damaged_entry_does_not_let_its_message_go(
    store: MessageStore, table: ArchiveTable, gate: ArchiveGate, shift: int
) -> None:
    await open_in(table)
    place = put(store)
    for _ in range(8):
        put(store, "other", body=bytes(20_000))
    put(store)
    store._upkeep.round()
    store.flush()
    path = store.parts.queues.queue("orders", 0).folder / f"{0:020d}"
    with path.open("r+b") as file:
        file.write((place + shift).to_bytes(8))

    found = gate()

    assert found is not None
    assert found.keep_from in (place, 0)
    again = gate()
    assert again is not None
    assert again.keep_from in (place, 0)
