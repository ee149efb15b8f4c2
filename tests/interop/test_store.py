"""A store directory handed from one broker to the other: ours to Java's, Java's to ours."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from orbitmq.record.decode import StoredMessage, decode_record
from orbitmq.record.hosts import encode_host
from orbitmq.record.layout import SystemFlag
from orbitmq.record.properties import encode_properties
from orbitmq.store.config import StoreConfig
from orbitmq.store.draft import Draft
from orbitmq.store.message_store import MessageStore
from tests.interop.drivers import JavaDriver
from tests.interop.official import OfficialBroker
from tests.interop.peers import BROKERS, NameServer, Peer

pytestmark = pytest.mark.interop

QUEUES = 4
MESSAGES = 200
ALL_TIME_MS = 2**62


@pytest.fixture(params=BROKERS, ids=str)
def peer(request: pytest.FixtureRequest) -> Peer:
    """The line of official brokers that shares the directory."""
    value: Peer = request.param
    return value


def store_of(folder: Path) -> MessageStore:
    """Open a directory with the sizes that the official brokers of the suite are started with."""
    return MessageStore(
        StoreConfig(
            root=folder / "store",
            log_file_bytes=16 << 20,
            queue_file_bytes=20 * 10_000,
            index_slots=10_000,
            index_entries=40_000,
        )
    )


def draft(topic: str, number: int) -> Draft:
    """Make a message of one of the kinds that a Java consumer reads."""
    body = f"message {number}".encode()
    compressed = number % 5 == 0
    return Draft(
        topic=topic,
        queue_id=number % QUEUES,
        body=zlib.compress(body) if compressed else body,
        system_flag=SystemFlag.COMPRESSED if compressed else 0,
        properties=encode_properties(
            {"KEYS": f"key-{number} shared", "TAGS": "interop", "UNIQ_KEY": f"{number:032X}"}
        ),
        born_ms=1_700_000_000_000 + number,
        born_host=encode_host("::1" if number % 7 == 0 else "127.0.0.1", 4711),
        flag=number,
    )


def everything(store: MessageStore, topic: str) -> list[StoredMessage]:
    """Read all messages of a topic."""
    messages: list[StoredMessage] = []
    for queue_id in range(QUEUES):
        offset = store.start_of(topic, queue_id)
        while (read := store.read(topic, queue_id, offset)).records:
            messages += map(decode_record, read.records)
            offset = read.next_offset
    return messages


@pytest.mark.scenario("peer", "opens a store that we wrote")
def test_an_official_broker_opens_our_store_and_its_client_consumes_it_completely(
    peer: Peer,
    name_servers: dict[str, NameServer],
    new_folder: Callable[[str], Path],
    drivers: Callable[[str], JavaDriver],
    new_topic: str,
) -> None:
    folder = new_folder(f"our-store-{peer.line}")
    with store_of(folder) as store:
        store.confirm([store.append(draft(new_topic, number)) for number in range(MESSAGES)])
    name_server = name_servers["ours"].address
    broker = OfficialBroker(peer.line, f"heir-{peer.line}", folder, [name_server])
    broker.process.start()
    try:
        broker.wait_ready()
        broker.create_topic(new_topic)
        driver = drivers(peer.line)

        received = driver.consume(name_server, new_topic, MESSAGES, group=f"group-{new_topic}")
        by_key = driver.mqadmin("queryMsgByKey", "-n", name_server, "-t", new_topic, "-k", "key-11")
    finally:
        broker.process.kill()

    assert {message.body for message in received} == {f"message {n}" for n in range(MESSAGES)}
    assert {message.message_id for message in received} == {f"{n:032X}" for n in range(MESSAGES)}
    assert f"{11:032X}" in by_key


@pytest.mark.parametrize("ending", ["stopped", "killed"])
@pytest.mark.scenario("peer", "hands its store to us and takes it back")
def test_we_open_the_store_of_an_official_broker_append_and_hand_it_back(
    peer: Peer,
    ending: str,
    name_servers: dict[str, NameServer],
    new_folder: Callable[[str], Path],
    drivers: Callable[[str], JavaDriver],
    new_topic: str,
) -> None:
    name_server = name_servers["ours"].address
    folder = new_folder(f"java-store-{peer.line}-{ending}")
    driver = drivers(peer.line)
    first = OfficialBroker(peer.line, f"first-{peer.line}-{ending}", folder, [name_server])
    first.process.start()
    try:
        first.wait_ready()
        first.create_topic(new_topic)
        driver.produce(name_server, new_topic, 50, keys="key-", tags="interop")
        if ending == "stopped":
            first.process.stop()
    finally:
        first.process.kill()

    with store_of(folder) as store:
        taken = everything(store, new_topic)
        (by_key,) = store.find(new_topic, "key-7", end_ms=ALL_TIME_MS)
        for number in range(100, 110):
            store.put(draft(new_topic, number))

    assert {message.body.decode() for message in taken} == {f"message {n}" for n in range(50)}
    assert by_key.body == b"message 7"
    # A folder of its own, where nothing of the first broker's output is mistaken for its own.
    new_home = new_folder(f"java-store-back-{peer.line}-{ending}")
    (folder / "store").rename(new_home / "store")
    second = OfficialBroker(peer.line, f"second-{peer.line}-{ending}", new_home, [name_server])
    second.process.start()
    try:
        second.wait_ready()
        received = driver.consume(name_server, new_topic, 60, group=f"group-{new_topic}")
    finally:
        second.process.kill()
    assert {message.body for message in received} == {
        f"message {n}" for n in (*range(50), *range(100, 110))
    }
