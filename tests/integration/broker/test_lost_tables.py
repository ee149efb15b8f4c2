"""A broker whose tables are gone with their copies."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from orbitmq.clock import ManualClock
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.offsets import CommitOffset
from orbitmq.store.readonly.readonly_store import ReadOnlyStore
from orbitmq.store.tools.findings import FindingKind
from orbitmq.store.tools.verification import verify
from tests.integration.broker.conftest import running


async def _use(folder: Path) -> None:
    async with running(folder, ManualClock()) as site:
        peer = await site.connect()
        await peer.make_topic("orders", read=3, write=3)
        for queue_id in range(3):
            assert (await peer.send("orders", b"kept", queue_id=queue_id)).code == 0
        assert (await peer.send("orders", b"late", DELAY="1")).code == 0
        await peer.heartbeat("c1", topic="orders")
        await site.advance_until(lambda: site.broker.topics.get("%RETRY%g") is not None)
        commit = CommitOffset(consumer_group="g", topic="orders", queue_id=0, commit_offset=Long(1))
        assert (await peer.ask(commit)).code == 0
        await site.stored("orders", 0, 2)


def _remove(folder: Path, name: str) -> None:
    for path in (folder / "store" / "config").glob(f"{name}*"):
        path.unlink()


async def test_topics_come_back_from_their_queues_if_their_table_is_gone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await _use(tmp_path)
    _remove(tmp_path, "topics.json")
    with ReadOnlyStore(tmp_path / "store") as store:
        found = verify(store, index_slots=100)

    with caplog.at_level(logging.ERROR):
        async with running(tmp_path, ManualClock()) as site:
            peer = await site.connect()
            orders = site.broker.topics.require("orders")
            bodies = [message.stored_body for message in await peer.read("orders", queue_id=2)]

    assert found.findings.counts == {FindingKind.MISSING_TOPICS: 1}
    assert "orders" in found.findings.problems[0].text
    assert (orders.read_queues, orders.write_queues, orders.permission) == (3, 3, 6)
    assert bodies == [b"kept"]
    assert "topics.json is missing, and so is its copy" in caplog.text
    assert "orders (3 queues)" in caplog.text


@pytest.mark.parametrize(
    "name", ["subscriptionGroup.json", "consumerOffset.json", "delayOffset.json"]
)
async def test_a_lost_table_is_named_when_the_broker_starts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    await _use(tmp_path)
    _remove(tmp_path, name)

    with caplog.at_level(logging.ERROR):
        async with running(tmp_path, ManualClock()):
            pass

    assert f"{name} is missing, and so is its copy" in caplog.text
    assert caplog.text.count("is missing") == 1


async def test_queues_come_back_that_only_the_last_change_of_topics_had(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path, ManualClock()) as site:
        peer = await site.connect()
        await peer.make_topic("orders", read=1, write=1)
        await peer.make_topic("orders", read=3, write=3)
        assert (await peer.send("orders", b"kept", queue_id=2)).code == 0
    (tmp_path / "store" / "config" / "topics.json").write_bytes(b"")

    with caplog.at_level(logging.ERROR):
        async with running(tmp_path, ManualClock()) as site:
            orders = site.broker.topics.require("orders")

    assert (orders.read_queues, orders.write_queues) == (3, 3)
    assert "topics.json is damaged; topics recovered from their queues" in caplog.text
    assert "orders (3 queues)" in caplog.text


async def test_topics_that_only_queues_have_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await _use(tmp_path)
    file = tmp_path / "store" / "config" / "topics.json"
    # As RocketMQ writes it: without a checksum.
    file.write_bytes(b'{"topicConfigTable":{}}')

    with caplog.at_level(logging.WARNING):
        async with running(tmp_path, ManualClock()) as site:
            assert site.broker.topics.get("orders") is None

    assert "topics.json lacks topics that have messages count=1 topics=orders" in caplog.text


async def test_tables_that_are_empty_when_the_broker_stops_are_not_taken_for_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # A group that has consumed nothing yet, and a delayed message that is not due.
    async with running(tmp_path, ManualClock()) as site:
        peer = await site.connect()
        await peer.make_topic("orders")
        assert (await peer.send("orders", b"late", DELAY="9")).code == 0
        await peer.heartbeat("c1", topic="orders")
        await site.advance_until(lambda: site.broker.topics.get("%RETRY%g") is not None)

    with caplog.at_level(logging.ERROR):
        async with running(tmp_path, ManualClock()):
            pass

    assert caplog.text == ""


async def test_a_new_broker_misses_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        await _use(tmp_path)

    assert "missing" not in caplog.text
