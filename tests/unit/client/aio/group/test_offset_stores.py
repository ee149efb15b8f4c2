"""Offsets at brokers and in a file: when they are persisted, and what happens if that fails."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from orbitmq.client.aio.group.offset_stores import (
    RECOMMIT_MS,
    RESET_LIFE_MS,
    BrokerOffsets,
    LocalOffsets,
    OffsetStore,
)
from orbitmq.client.core.consuming.inflight_window import InflightWindow
from orbitmq.client.core.consuming.local_offsets import decode_offsets, encode_offsets
from orbitmq.clock import ManualClock, settle
from orbitmq.errors import ConnectError, LocalOffsetsError
from tests.unit.client.aio.simulated_brokers import SimulatedBrokers, queue

FIRST, SECOND, ELSEWHERE = queue(0), queue(1), queue(0, broker_name="broker-b")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def brokers() -> SimulatedBrokers:
    return SimulatedBrokers()


@pytest.fixture
def at_brokers(brokers: SimulatedBrokers, clock: ManualClock) -> BrokerOffsets:
    return BrokerOffsets("shippers", brokers, clock)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "10.0.0.1@DEFAULT" / "shippers" / "offsets.json"


@pytest.fixture(params=["at brokers", "in a file"])
def store(request: pytest.FixtureRequest, at_brokers: BrokerOffsets, path: Path) -> OffsetStore:
    return at_brokers if request.param == "at brokers" else LocalOffsets(path)


async def test_an_offset_is_in_memory_before_it_is_persisted(store: OffsetStore) -> None:
    await store.load()
    assert await store.read(FIRST) is None

    store.update(FIRST, 5)
    store.update(FIRST, 3)

    assert await store.read(FIRST) == 5
    assert store.cached(FIRST) == 5
    assert store.offsets() == {FIRST: 5}
    assert store.offsets("returns") == {}


async def test_a_commit_is_persisted_at_once_even_to_a_lower_offset(store: OffsetStore) -> None:
    await store.load()
    store.update(FIRST, 5)

    for offset in (7, 2):
        await store.commit({FIRST: offset, SECOND: 1})

        assert store.cached(FIRST) == offset
        store.remove(FIRST)
        assert await store.read(FIRST) == offset


async def test_what_was_persisted_is_found_after_it_was_forgotten(store: OffsetStore) -> None:
    await store.load()
    store.update(FIRST, 5)
    store.update(SECOND, 6)

    await store.persist([FIRST])
    store.remove(FIRST)
    store.remove(SECOND)

    assert store.cached(FIRST) is None
    assert await store.read(FIRST) == 5
    assert await store.read(SECOND) is None


async def test_a_reset_may_lower_the_offset_and_holds_until_the_queue_is_removed(
    store: OffsetStore,
) -> None:
    await store.load()
    store.update(FIRST, 5)
    await store.persist_all()

    store.reset(FIRST, 2)
    store.update(FIRST, 6)
    await store.persist([FIRST])
    store.remove(FIRST)

    assert await store.read(FIRST) == 2
    store.update(FIRST, 3)
    assert store.cached(FIRST) == 3


async def test_the_committable_offset_of_a_window_is_recorded(
    store: OffsetStore, clock: ManualClock
) -> None:
    store.record(FIRST, InflightWindow(7, clock))

    assert store.cached(FIRST) == 7


async def test_a_commit_waits_for_the_answer_to_the_one_before(
    at_brokers: BrokerOffsets, brokers: SimulatedBrokers
) -> None:
    at_brokers.update(FIRST, 5)
    brokers.hold_commits()
    periodic = asyncio.create_task(at_brokers.persist_all())
    await settle()
    by_user = asyncio.create_task(at_brokers.commit({FIRST: 9}))
    stale = asyncio.create_task(at_brokers.persist([FIRST]))
    await settle()
    assert brokers.begun_commits == [(FIRST, 5)]

    brokers.release_commits()
    await asyncio.gather(periodic, by_user, stale)

    assert brokers.begun_commits == [(FIRST, 5), (FIRST, 9)]
    assert brokers.committed == {FIRST: 9}
    assert brokers.oneway_commits == []


async def test_other_queues_of_a_topic_wait_for_the_reply_to_its_first_commit(
    at_brokers: BrokerOffsets, brokers: SimulatedBrokers
) -> None:
    brokers.hold_commits()
    committing = asyncio.create_task(at_brokers.commit({FIRST: 5, SECOND: 6, ELSEWHERE: 7}))
    await settle()
    assert brokers.begun_commits == [(FIRST, 5), (ELSEWHERE, 7)]

    brokers.release_commits()
    await committing
    assert brokers.committed == {FIRST: 5, SECOND: 6, ELSEWHERE: 7}

    brokers.hold_commits()
    committing = asyncio.create_task(at_brokers.commit({FIRST: 8, SECOND: 9}))
    await settle()
    assert brokers.begun_commits[3:] == [(FIRST, 8), (SECOND, 9)]
    brokers.release_commits()
    await committing


async def test_a_first_commit_that_fails_does_not_hold_the_others_up(
    at_brokers: BrokerOffsets, brokers: SimulatedBrokers
) -> None:
    brokers.down.add("broker-a")
    with pytest.raises(ConnectError):
        await at_brokers.commit({FIRST: 5, SECOND: 6})

    brokers.down.clear()
    await at_brokers.commit({FIRST: 5, SECOND: 6})
    assert brokers.committed == {FIRST: 5, SECOND: 6}


async def test_unchanged_offsets_are_committed_again_only_after_a_while(
    at_brokers: BrokerOffsets, brokers: SimulatedBrokers, clock: ManualClock
) -> None:
    at_brokers.update(FIRST, 5)
    await at_brokers.persist_all()
    await at_brokers.persist_all()
    assert brokers.calls == ["commit"]

    brokers.committed.clear()
    await clock.advance(RECOMMIT_MS)
    await at_brokers.persist_all()

    assert brokers.committed == {FIRST: 5}


async def test_a_reset_holds_when_the_queue_is_taken_again_even_if_a_pull_overtakes_it(
    at_brokers: BrokerOffsets, brokers: SimulatedBrokers, clock: ManualClock
) -> None:
    at_brokers.reset(FIRST, 2)
    await at_brokers.persist([FIRST])
    brokers.committed[FIRST] = 5
    at_brokers.remove(FIRST)

    assert await at_brokers.read(FIRST) == 2
    await at_brokers.persist_all()
    assert brokers.committed == {FIRST: 2}

    at_brokers.reset(FIRST, 1)
    at_brokers.remove(FIRST)
    await clock.advance(RESET_LIFE_MS)
    assert await at_brokers.read(FIRST) == 2


async def test_a_broker_that_is_down_delays_no_other_and_is_retried(
    at_brokers: BrokerOffsets, brokers: SimulatedBrokers, caplog: pytest.LogCaptureFixture
) -> None:
    for one in (FIRST, SECOND, ELSEWHERE):
        at_brokers.update(one, 5)
    brokers.down.add("broker-a")

    await at_brokers.persist_all()
    assert brokers.committed == {ELSEWHERE: 5}
    assert "group=shippers broker=broker-a queues=2 reason=cannot connect" in caplog.text

    brokers.down.clear()
    await at_brokers.persist_all()
    assert brokers.committed == {ELSEWHERE: 5, FIRST: 5, SECOND: 5}


async def test_a_refused_queue_delays_no_other_and_is_logged_once(
    at_brokers: BrokerOffsets, brokers: SimulatedBrokers, caplog: pytest.LogCaptureFixture
) -> None:
    gone, there = queue(0, "deleted"), queue(0, "orders")
    brokers.deleted.add("deleted")
    at_brokers.update(gone, 5)
    at_brokers.update(there, 6)

    await at_brokers.persist_all()
    await at_brokers.persist_all()

    assert brokers.committed == {there: 6}
    assert caplog.text.count("offsets not committed") == 1


async def test_the_offset_0_of_a_young_queue_is_committed(
    at_brokers: BrokerOffsets, brokers: SimulatedBrokers
) -> None:
    brokers.committed[FIRST] = 0

    assert await at_brokers.read(FIRST) == 0
    await at_brokers.persist_all()

    assert brokers.begun_commits == [(FIRST, 0)]


async def test_nothing_is_persisted_for_a_queue_that_another_client_has(store: OffsetStore) -> None:
    await store.load()
    store.update(FIRST, 5)
    await store.persist_all()

    store.disown(FIRST)
    store.update(FIRST, 6)
    await store.persist([FIRST])
    store.remove(FIRST)

    assert await store.read(FIRST) == 5


async def test_a_broker_that_cannot_be_asked_is_an_error(
    at_brokers: BrokerOffsets, brokers: SimulatedBrokers
) -> None:
    brokers.down.add("broker-a")

    with pytest.raises(ConnectError):
        await at_brokers.read(FIRST)


async def test_an_offset_set_while_the_broker_is_asked_stays(clock: ManualClock) -> None:
    class Slow(SimulatedBrokers):
        async def committed_offset(self, _queue: object, _group: str) -> int | None:
            offsets.update(FIRST, 9)
            return 5

    offsets = BrokerOffsets("shippers", Slow(), clock)

    assert await offsets.read(FIRST) == 5
    assert offsets.cached(FIRST) == 9


async def test_the_file_keeps_what_others_wrote(path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.write_bytes(encode_offsets({SECOND: 3}))
    store = LocalOffsets(path)
    await store.load()
    path.write_bytes(encode_offsets({SECOND: 4, ELSEWHERE: 8}))

    store.update(FIRST, 5)
    await store.persist_all()

    assert decode_offsets(path.read_bytes()) == {FIRST: 5, SECOND: 4, ELSEWHERE: 8}
    assert decode_offsets(path.with_name("offsets.json.bak").read_bytes()) == {
        SECOND: 4,
        ELSEWHERE: 8,
    }


async def test_nothing_is_written_when_nothing_changed(path: Path) -> None:
    store = LocalOffsets(path)
    await store.load()

    await store.persist_all()
    assert not path.exists()

    store.update(FIRST, 5)
    await store.persist_all()
    path.unlink()
    await store.persist_all()
    assert not path.exists()


async def test_a_damaged_file_is_set_aside_and_its_backup_used(path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.write_bytes(b"{")
    path.with_name("offsets.json.bak").write_bytes(encode_offsets({FIRST: 5}))
    store = LocalOffsets(path)

    await store.load()

    assert await store.read(FIRST) == 5
    assert path.with_name("offsets.json.damaged").read_bytes() == b"{"
    store.update(FIRST, 6)
    await store.persist_all()
    assert decode_offsets(path.read_bytes()) == {FIRST: 6}
    assert decode_offsets(path.with_name("offsets.json.bak").read_bytes()) == {FIRST: 5}


async def test_a_file_that_cannot_be_read_is_an_error(path: Path) -> None:
    path.mkdir(parents=True)

    with pytest.raises(LocalOffsetsError, match=r"cannot read .*offsets\.json"):
        await LocalOffsets(path).load()


async def test_a_write_that_failed_is_retried(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = LocalOffsets(path)
    await store.load()
    store.update(FIRST, 5)
    path.mkdir(parents=True)

    await store.persist_all()
    assert "offsets not written" in caplog.text

    path.rmdir()
    await store.persist_all()
    assert decode_offsets(path.read_bytes()) == {FIRST: 5}


async def test_a_failed_commit_is_raised_after_all_were_sent(
    at_brokers: BrokerOffsets, brokers: SimulatedBrokers
) -> None:
    brokers.down.add("broker-a")

    with pytest.raises(ConnectError):
        await at_brokers.commit({FIRST: 5, ELSEWHERE: 6})

    assert brokers.committed == {ELSEWHERE: 6}
    brokers.down.clear()
    await at_brokers.persist_all()
    assert brokers.committed == {ELSEWHERE: 6, FIRST: 5}


async def test_a_commit_to_a_file_that_cannot_be_written_is_an_error(path: Path) -> None:
    store = LocalOffsets(path)
    await store.load()
    path.mkdir(parents=True)

    with pytest.raises(LocalOffsetsError, match=r"cannot \w+ .*offsets\.json"):
        await store.commit({FIRST: 5})


async def test_what_only_a_slave_has_is_committed_again_until_the_master_has_it(
    clock: ManualClock,
) -> None:
    brokers = SimulatedBrokers()
    store = BrokerOffsets("g", brokers, clock)
    brokers.has_only_slaves = True
    store.update(FIRST, 5)
    await store.persist_all()
    await store.persist_all()
    brokers.has_only_slaves = False
    await store.persist_all()
    await store.persist_all()

    assert brokers.begun_commits == [(FIRST, 5)] * 3
