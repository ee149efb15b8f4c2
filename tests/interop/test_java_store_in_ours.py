"""A store that an official broker wrote, opened, verified, rebuilt and handed back by us.

One chain a line, each link a fixture: an official broker writes and is killed; we recover its
store and append; a second one goes on with it and is stopped; we rebuild queues and index; a
third one serves what came of it all.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from typer.testing import CliRunner

from orbitmq.cli.main import command_for
from orbitmq.model.queues import QueueOffset
from orbitmq.record.decode import StoredMessage, decode_record
from orbitmq.record.layout import SystemFlag
from orbitmq.record.properties import encode_properties
from orbitmq.store.log.draft import Draft
from orbitmq.store.readonly.readonly_store import ReadOnlyStore
from orbitmq.store.readonly.visible_end import Writer
from tests.interop.drivers import JavaDriver, Listed, Received
from tests.interop.peers import BROKERS, NameServer, Peer
from tests.interop.record_kinds import DELAY_TOPIC
from tests.interop.store_chain import Chain, read_live
from tests.interop.stores import (
    INDEX_ENTRIES,
    INDEX_SLOTS,
    QUEUE_FILE_BYTES,
    open_store,
    read_all,
)

pytestmark = pytest.mark.interop

ALL_TIME_MS = 2**62


@pytest.fixture(scope="module", params=BROKERS, ids=str)
def peer(request: pytest.FixtureRequest) -> Peer:
    """The line of official brokers that shares the directory."""
    value: Peer = request.param
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What we found in a store."""

    messages: dict[str, StoredMessage]
    delayed: dict[str, StoredMessage]
    due_ms: dict[str, int]
    retried: list[StoredMessage]
    by_key: dict[str, list[StoredMessage]]
    by_offset_id: dict[str, StoredMessage | None]


def by_id(messages: Sequence[StoredMessage]) -> dict[str, StoredMessage]:
    return {message.properties["UNIQ_KEY"]: message for message in messages}


def look_and_append(chain: Chain, first_number: int) -> Found:
    """Open the store for writing, read all that the test knows of, and append ten messages."""
    with open_store(chain.folder) as store:
        delayed = read_all(store, DELAY_TOPIC)
        queues = {q.queue_id: q for q in store.parts.queues if q.topic == DELAY_TOPIC}
        due_ms: dict[str, int] = {}
        for message in delayed:
            entry = queues[message.queue_id].entry(QueueOffset(message.queue_offset))
            assert entry is not None
            due_ms[message.properties["UNIQ_KEY"]] = entry[2]
        keys = [key for listed in chain.sent.values() for key in listed.keys.split(" ")]
        found = Found(
            messages=by_id(read_all(store, chain.topic)),
            delayed=by_id(delayed),
            due_ms=due_ms,
            retried=read_all(store, f"%RETRY%{chain.retry_group}"),
            by_key={key: store.find(chain.topic, key, end_ms=ALL_TIME_MS) for key in keys},
            by_offset_id={
                message_id: store.message_by_id(offset_id)
                for message_id, offset_id in chain.offset_ids.items()
            },
        )
        for number in range(first_number, first_number + 10):
            listed = Listed(body=f"ours {number}", keys=f"ours-{number}", tags="ours")
            message_id = f"{number:032X}"
            properties = {"KEYS": listed.keys, "TAGS": listed.tags, "UNIQ_KEY": message_id}
            store.put(
                Draft(
                    topic=chain.topic,
                    queue_id=number % 4,
                    body=listed.body.encode(),
                    properties=encode_properties(properties),
                )
            )
            chain.sent[message_id] = listed
    return found


def run(*arguments: str) -> str:
    """Run `orbitmq store …`, which must find all well."""
    result = CliRunner().invoke(command_for(["store"]), ["store", *arguments])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture(scope="module")
def chain(
    peer: Peer,
    name_servers: dict[str, NameServer],
    new_folder: Callable[[str], Path],
    drivers: Callable[[str], JavaDriver],
) -> Iterator[Chain]:
    """The first link: a store that an official broker wrote before it was killed."""
    made = Chain(
        line=peer.line,
        topic=f"java-store-{peer.line}",
        folder=Path(),
        name_server=name_servers["ours"].address,
        driver=drivers(peer.line),
        new_folder=new_folder,
    )
    try:
        broker = made.start_broker()
        broker.create_topic(made.topic)
        made.send_every_kind()
        made.send_back()
        made.live = read_live(made)
        broker.process.kill()
        yield made
    finally:
        for broker in made.brokers:
            broker.process.kill()


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One look of ours into the store, and what it should have found."""

    sent: dict[str, Listed]
    found: Found
    # Of each record by its physical offset.
    store_times: dict[int, int] = field(default_factory=dict)


@pytest.fixture(scope="module")
def recovered(chain: Chain) -> Link:
    """The second link: we open what the killed broker left."""
    sent = dict(chain.sent)
    found = look_and_append(chain, 1000)
    run("verify", str(chain.folder / "store"))
    with ReadOnlyStore(chain.folder / "store") as store:
        times = {int(offset): decode_record(record).store_ms for offset, record in store.records()}
    return Link(sent=sent, found=found, store_times=times)


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What an official broker served of the store that we handed back."""

    sent: dict[str, Listed]
    received: dict[str, Received]
    by_key: dict[str, list[Received]]


def serve(chain: Chain) -> Served:
    """Have an official broker open the store, and its client ask for everything."""
    chain.start_broker()
    received = chain.consume()
    return Served(sent=dict(chain.sent), received=received, by_key=chain.find())


@pytest.fixture(scope="module")
def handed_back(chain: Chain, recovered: Link) -> Served:
    """The third link: an official broker goes on with what we recovered, and is stopped."""
    assert recovered.found.messages
    served = serve(chain)
    chain.send([Listed(body=f"later {n}", keys=f"later-{n}") for n in range(10)])
    chain.brokers[-1].process.stop()
    return served


@pytest.fixture(scope="module")
def stopped(chain: Chain, handed_back: Served) -> Link:
    """The fourth link: we open what the stopped broker left, once it is found in order."""
    assert handed_back.received
    store = chain.folder / "store"
    assert not (store / "abort").exists(), "the broker was not stopped cleanly"
    run("verify", str(store))
    sent = dict(chain.sent)
    return Link(sent=sent, found=look_and_append(chain, 2000))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilt:
    """Queues before and after we made them again, and what an official broker served then."""

    before: dict[str, bytes]
    after: dict[str, bytes]
    served: Served


def queue_files(store: Path) -> dict[str, bytes]:
    """The files of the consume queues that hold something, by path."""
    folder = store / "consumequeue"
    return {
        str(file.relative_to(folder)): content
        for file in folder.glob("*/*/*")
        if any(content := file.read_bytes())
    }


@pytest.fixture(scope="module")
def rebuilt(chain: Chain, stopped: Link) -> Rebuilt:
    """The last link: an official broker opens the store with queues and index made by us."""
    assert stopped.found.messages
    store = chain.folder / "store"
    assert len(list((store / "commitlog").iterdir())) > 2
    before = queue_files(store)
    shutil.rmtree(store / "consumequeue")
    shutil.rmtree(store / "index")
    run(
        "rebuild",
        str(store),
        f"--queue-file-bytes={QUEUE_FILE_BYTES}",
        "--index",
        f"--index-slots={INDEX_SLOTS}",
        f"--index-entries={INDEX_ENTRIES}",
    )
    run("verify", str(store))
    return Rebuilt(before=before, after=queue_files(store), served=serve(chain))


def assert_is(message: StoredMessage, listed: Listed) -> None:
    assert message.body.decode() == listed.body
    assert message.flag == listed.flag
    assert message.properties.get("KEYS", "") == listed.keys
    assert message.properties.get("TAGS", "") == listed.tags
    assert listed.properties.items() <= message.properties.items()


def assert_shown(message: Received, listed: Listed) -> None:
    assert (message.body, message.keys or "") == (listed.body, listed.keys)
    assert (message.tags or "", message.flag) == (listed.tags, listed.flag)
    assert listed.properties.items() <= message.properties.items()


def assert_found_all(link: Link, chain: Chain, *, delivered: bool) -> None:
    """Check that we read everything as it was sent, by queue, key and id."""
    for message_id, listed in link.sent.items():
        if delivered or not listed.delay_level:
            assert_is(link.found.messages[message_id], listed)
            for key in listed.keys.split(" "):
                assert_is(link.found.by_key[key][0], listed)
        if message_id in chain.offset_ids:
            seen = link.found.by_offset_id[message_id]
            assert seen is not None
            assert_is(seen, listed)
    assert link.found.messages.keys() <= link.sent.keys()


@pytest.mark.scenario("peer", "is read while it writes")
def test_a_reader_beside_the_broker_stops_where_the_checkpoint_says(
    chain: Chain, recovered: Link
) -> None:
    live = chain.live
    assert live is not None

    assert live.state.written_by is Writer.ROCKETMQ
    assert not live.state.is_clean
    assert live.offsets == [
        offset
        for offset, store_ms in recovered.store_times.items()
        if store_ms < live.state.checkpoint.log_ms
    ]
    assert live.ids <= chain.sent.keys()


@pytest.mark.scenario("peer", "is killed, and we read its whole store")
def test_we_read_everything_that_a_killed_broker_stored(chain: Chain, recovered: Link) -> None:
    found = recovered.found

    assert_found_all(recovered, chain, delivered=False)
    packed = [message for message in found.messages.values() if message.system_flag & 1]
    assert {message.system_flag & SystemFlag.ZLIB for message in packed} == {
        SystemFlag.ZLIB,
        SystemFlag.LZ4,
        SystemFlag.ZSTD,
    }
    assert not chain.rolled_back_ids & found.messages.keys()


@pytest.mark.scenario("peer", "is killed, and we find its delayed messages")
def test_delayed_messages_wait_in_their_queues_with_the_time_they_are_due(
    recovered: Link,
) -> None:
    for message_id, listed in recovered.sent.items():
        if listed.delay_level:
            message = recovered.found.delayed[message_id]
            assert_is(message, listed)
            delay_ms = {1: 1000, 3: 10_000}[listed.delay_level]
            assert recovered.found.due_ms[message_id] == message.store_ms + delay_ms


@pytest.mark.scenario("peer", "is killed, and we read what was to be retried")
def test_a_message_that_was_sent_back_is_read_from_the_retry_topic(
    chain: Chain, recovered: Link
) -> None:
    (message,) = recovered.found.retried

    assert message.topic == f"%RETRY%{chain.retry_group}"
    assert message.reconsume_times == 1
    assert_is(message, next(iter(recovered.sent.values())))


@pytest.mark.scenario("peer", "continues with a store of its own that we recovered")
def test_an_official_broker_serves_what_we_recovered_and_appended(
    handed_back: Served, chain: Chain
) -> None:
    assert handed_back.received.keys() == handed_back.sent.keys()
    for message_id, listed in handed_back.sent.items():
        assert_shown(handed_back.received[message_id], listed)
        for key in listed.keys.split(" "):
            assert handed_back.by_key[key], key
    assert not chain.rolled_back_ids & handed_back.received.keys()


@pytest.mark.scenario("peer", "is stopped, and its store is verified and read")
def test_we_read_everything_that_a_stopped_broker_stored(chain: Chain, stopped: Link) -> None:
    assert_found_all(stopped, chain, delivered=True)


@pytest.mark.scenario("peer", "continues with queues and index that we made")
def test_an_official_broker_serves_a_store_with_rebuilt_queues_and_index(
    rebuilt: Rebuilt,
) -> None:
    served = rebuilt.served

    assert served.received.keys() == served.sent.keys()
    for message_id, listed in served.sent.items():
        assert_shown(served.received[message_id], listed)
        for key in listed.keys.split(" "):
            assert_shown(served.by_key[key][0], listed)


@pytest.mark.scenario("peer", "its queues, rebuilt by us, are the same byte for byte")
def test_rebuilt_queues_are_what_the_official_broker_had_written(rebuilt: Rebuilt) -> None:
    assert rebuilt.after.keys() == rebuilt.before.keys()
    assert [file for file in rebuilt.after if rebuilt.after[file] != rebuilt.before[file]] == []
