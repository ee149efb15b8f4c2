"""A store that we wrote, with every kind of record, opened by an official broker."""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from orbitmq.clock import SystemClock
from orbitmq.errors import StoreLockedError
from orbitmq.record.hosts import decode_host
from tests.interop.drivers import JavaDriver, Received
from tests.interop.official import OfficialBroker
from tests.interop.peers import BROKERS, NameServer, Peer
from tests.interop.record_kinds import (
    DONE_TOPIC,
    HALF_TOPIC,
    SHARED_KEY,
    TRANSACTION_GROUP,
    UNICODE_KEYS,
    UNICODE_TAGS,
    EveryKind,
    Outcome,
    Written,
)
from tests.interop.stores import SMALL_FILES, open_store, write_topics

pytestmark = pytest.mark.interop

# RocketMQ 4.9 takes a V2 record for damage, and cuts the log before it.
LINES_WITH_V2 = {"v5"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Inheritance:
    """Our store in the hands of an official broker."""

    broker: OfficialBroker
    driver: JavaDriver
    name_server: str
    folder: Path
    kinds: EveryKind
    offset_ids: dict[str, str]


@pytest.fixture(scope="module", params=BROKERS, ids=str)
def peer(request: pytest.FixtureRequest) -> Peer:
    """The line of official brokers that takes the store over."""
    value: Peer = request.param
    return value


@pytest.fixture(scope="module")
def heir(
    peer: Peer,
    name_servers: dict[str, NameServer],
    new_folder: Callable[[str], Path],
    drivers: Callable[[str], JavaDriver],
) -> Iterator[Inheritance]:
    """An official broker on a store that we wrote, shared: tests leave its messages alone."""
    name_server = name_servers["ours"].address
    folder = new_folder(f"our-store-{peer.line}")
    broker = OfficialBroker(
        peer.line,
        f"heir-{peer.line}",
        folder,
        [name_server],
        {
            **SMALL_FILES,
            # It asks soon what became of a transaction.
            "transactionTimeOut": "100",
            "transactionCheckInterval": "2000",
            "transactionOpBatchInterval": "100",
        },
    )
    kinds = EveryKind(
        f"our-store-{peer.line}",
        group="heirs",
        born_ms=SystemClock().now_ms(),
        with_v2=peer.line in LINES_WITH_V2,
    )
    write_topics(folder, kinds.queues_by_topic)
    port = int(broker.address.rpartition(":")[2])
    half = len(kinds.batches) // 2
    receipts = []
    with open_store(folder, store_host=("127.0.0.1", port)) as store:
        receipts += kinds.put(store, kinds.batches[:half])
    with open_store(folder, store_host=("::1", port)) as store:
        receipts += kinds.put(store, kinds.batches[half:])
    for files in ("commitlog/*", "consumequeue/*/0/*", "index/*"):
        assert len(list((folder / "store").glob(files))) > 2, f"several {files}"
    broker.process.start()
    try:
        broker.wait_ready()
        yield Inheritance(
            broker=broker,
            driver=drivers(peer.line),
            name_server=name_server,
            folder=folder,
            kinds=kinds,
            offset_ids={
                one.message_id: receipt.message_id
                for one, receipt in zip(kinds, receipts, strict=True)
            },
        )
    finally:
        broker.process.kill()


def assert_shows(received: Received, one: Written) -> None:
    """Check that Java shows a record as we wrote it."""
    draft = one.draft
    assert received.body == one.body
    assert received.tags == one.tags
    assert received.keys == (" ".join(one.keys) or None)
    assert received.flag == draft.flag
    assert received.reconsume_times == draft.reconsume_times
    assert received.born_ms == draft.born_ms
    assert ipaddress.ip_address(received.born_host) == ipaddress.ip_address(
        decode_host(draft.born_host)[0]
    )
    assert one.properties.items() <= received.properties.items()


@pytest.mark.scenario("peer", "opens a store that we wrote, every kind of record")
def test_a_consumer_gets_every_record_that_is_meant_for_it_and_nothing_else(
    heir: Inheritance,
) -> None:
    topic = heir.kinds.topic
    other_topics = {heir.kinds.longest_topic, heir.kinds.v2_topic}
    wanted = {
        one.message_id: one
        for one in heir.kinds
        if one.is_consumed and one.draft.topic not in other_topics
    }
    heir.driver.open_transactions(
        "decider", heir.name_server, group=TRANSACTION_GROUP, topic=heir.kinds.longest_topic
    )
    try:
        received = heir.driver.consume(heir.name_server, topic, len(wanted), group=heir.kinds.group)
    finally:
        heir.driver.close_producer("decider")

    assert {message.message_id for message in received} == wanted.keys()
    times = Counter(message.message_id for message in received)
    for message_id, one in wanted.items():
        # A broker that is slow asks again about a transaction, and delivers it again.
        assert times[message_id] == 1 or one.outcome is Outcome.DELIVERED
    for message in received:
        assert_shows(message, wanted[message.message_id])
        # Also what came from the retry topic bears the name of its own.
        assert message.topic == topic
    assert {message.store_host for message in received} == {"127.0.0.1", "0:0:0:0:0:0:0:1"}


@pytest.mark.parametrize(
    "peer",
    [peer for peer in BROKERS if peer.line in LINES_WITH_V2],
    ids=str,
    indirect=True,
    scope="module",
)
@pytest.mark.scenario("peer", "opens a store that we wrote, V2 records")
def test_a_consumer_gets_the_v2_records_of_a_topic_with_a_long_name(heir: Inheritance) -> None:
    topic = heir.kinds.v2_topic
    assert topic is not None
    wanted = {one.message_id: one for one in heir.kinds if one.draft.topic == topic}

    received = heir.driver.consume(heir.name_server, topic, len(wanted), group="of-v2")

    assert sorted(message.message_id for message in received) == sorted(wanted)
    for message in received:
        assert_shows(message, wanted[message.message_id])


@pytest.mark.scenario("peer", "finds what we wrote by key")
def test_every_record_is_found_by_each_of_its_own_keys(heir: Inheritance) -> None:
    # Of the topics for transactions official brokers do not tell the name server.
    kinds = [one for one in heir.kinds if one.draft.topic not in (HALF_TOPIC, DONE_TOPIC)]
    own_keys = {one.message_id: [key for key in one.keys if key != SHARED_KEY] for one in kinds}
    keys_by_topic: dict[str, list[str]] = {}
    for one in kinds:
        keys_by_topic.setdefault(one.draft.topic, []).extend(own_keys[one.message_id])

    found = {
        topic: heir.driver.find(heir.name_server, topic, keys)
        for topic, keys in keys_by_topic.items()
    }

    for one in kinds:
        for key in own_keys[one.message_id]:
            messages = found[one.draft.topic][key]
            assert len(messages) == (one.outcome is not Outcome.HIDDEN), (one.body, key)
            for message in messages:
                assert_shows(message, one)
    assert {*UNICODE_KEYS} <= found[heir.kinds.topic].keys()


@pytest.mark.scenario("peer", "finds what we wrote by unique id and by offset id")
def test_a_record_is_found_by_both_of_its_ids(heir: Inheritance) -> None:
    one = next(iter(heir.kinds))
    ids = [one.message_id, heir.offset_ids[one.message_id]]

    seen = heir.driver.view(heir.name_server, heir.kinds.topic, ids)

    for message_id in ids:
        assert_shows(seen[message_id], one)


@pytest.mark.scenario("peer", "filters what we wrote by tag")
def test_a_subscription_by_tag_gets_the_records_that_bear_it(heir: Inheritance) -> None:
    (wanted,) = (one for one in heir.kinds if one.tags == UNICODE_TAGS)

    received = heir.driver.consume(
        heir.name_server, heir.kinds.topic, 1, group="by-tag", expression=UNICODE_TAGS
    )

    assert [message.message_id for message in received] == [wanted.message_id]


@pytest.mark.scenario("peer", "keeps us from a store that it has open")
def test_we_refuse_to_write_a_store_that_an_official_broker_has_open(heir: Inheritance) -> None:
    with pytest.raises(StoreLockedError) as refused:
        open_store(heir.folder)

    assert str(refused.value) == (
        f"{heir.folder / 'store'} is in use by another process "
        "(stop the broker that uses it, or give this one a folder of its own)"
    )
