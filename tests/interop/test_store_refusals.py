"""Stores that official brokers refuse, or take only in part."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from orbitmq.record.layout import TOPIC_BYTES_MAX_V1
from orbitmq.store.log.draft import Draft
from tests.interop import wire
from tests.interop.official import OfficialBroker
from tests.interop.peers import BROKERS, NameServer, Peer
from tests.interop.stores import SMALL_FILES, open_store, write_topics
from tests.interop.timeouts import START_TIMEOUT_S

pytestmark = pytest.mark.interop

OLD_LINE = "v4"


@pytest.fixture(params=BROKERS, ids=str)
def peer(request: pytest.FixtureRequest) -> Peer:
    """The line of official brokers that is given the store."""
    value: Peer = request.param
    return value


@pytest.fixture
def broker(
    peer: Peer, name_servers: dict[str, NameServer], new_folder: Callable[[str], Path]
) -> OfficialBroker:
    """An official broker that is not started, for a store in its folder."""
    name = f"refusing-{peer.line}"
    return OfficialBroker(
        peer.line, name, new_folder(name), [name_servers["ours"].address], SMALL_FILES
    )


@pytest.mark.scenario("peer", "is kept from a store that we have open")
def test_an_official_broker_refuses_a_store_that_we_have_open(broker: OfficialBroker) -> None:
    folder = broker.process.folder
    with open_store(folder) as store:
        store.put(Draft(topic="held", body=b"before"))

        broker.process.start()
        try:
            broker.process.wait_printed("Lock failed", timeout_s=START_TIMEOUT_S)
        finally:
            broker.process.kill()
        assert "boot success" not in broker.process.console.read_text()
        store.put(Draft(topic="held", body=b"after"))

    with open_store(folder) as store:
        assert store.end_of("held", 0) == 2


@pytest.mark.parametrize(
    "peer", [peer for peer in BROKERS if peer.line == OLD_LINE], ids=str, indirect=True
)
@pytest.mark.scenario("peer", "cuts a log before its first V2 record")
def test_rocketmq_4_9_cuts_the_log_before_the_first_record_of_a_topic_with_a_long_name(
    broker: OfficialBroker,
) -> None:
    folder = broker.process.folder
    long_topic = "long".ljust(TOPIC_BYTES_MAX_V1 + 1, "-")
    write_topics(folder, {"short": 1})
    with open_store(folder) as store:
        for topic in ("short", "short", long_topic, "short"):
            store.put(Draft(topic=topic, body=b"message"))

    broker.process.start()
    try:
        broker.wait_ready()
        kept = wire.max_offset(broker.address, "short", 0)
    finally:
        broker.process.kill()

    assert kept == 2
