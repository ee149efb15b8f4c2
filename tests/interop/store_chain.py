"""A store on its way from broker to broker, and what official clients put into it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from orbitmq.record.layout import TOPIC_BYTES_MAX_V1
from orbitmq.store.readonly.readonly_store import ReadOnlyStore
from orbitmq.store.readonly.visible_end import StoreState
from tests.interop import wire
from tests.interop.drivers import JavaDriver, Listed, Received
from tests.interop.official import OfficialBroker
from tests.interop.stores import SMALL_FILES, write_group
from tests.interop.timeouts import CLIENT_TIMEOUT_S
from tests.waiting import wait_until

# Enough to fill several files of the log.
PLAIN = 150
PLAIN_BYTES = 700
PACKED_BODY = "repeated " * 600
KEYS = ("schlüssel", "鍵", "🔑")
PROPERTIES = {"größe": "12 € 🚀"}
# Its retry topic takes a V2 record, which RocketMQ 4.9 does not know.
LONG_GROUP = "group-of-a-long-name-".ljust(TOPIC_BYTES_MAX_V1 + 20, "x")
RETRY_GROUPS = {"v4": "group-of-a-short-name", "v5": LONG_GROUP}
# What a reader beside the broker waits for; ten seconds and a minute otherwise.
FLUSH_OFTEN = {
    "flushCommitLogThoroughInterval": "500",
    "flushConsumeQueueThoroughInterval": "500",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """What a reader saw of the store while the first broker wrote it."""

    state: StoreState
    offsets: list[int]
    ids: set[str]


@dataclass(slots=True, kw_only=True)
class Chain:
    """One store on its way from hand to hand, and what it must hold."""

    line: str
    topic: str
    folder: Path
    name_server: str
    driver: JavaDriver
    new_folder: Callable[[str], Path]
    brokers: list[OfficialBroker] = field(default_factory=list)
    sent: dict[str, Listed] = field(default_factory=dict)
    offset_ids: dict[str, str] = field(default_factory=dict)
    rolled_back_ids: set[str] = field(default_factory=set)
    live: Live | None = None

    def start_broker(self) -> OfficialBroker:
        """Have another official broker open the store, in a folder of its own."""
        folder = self.new_folder(f"java-store-{self.line}-{len(self.brokers)}")
        if self.brokers:
            (self.folder / "store").rename(folder / "store")
        else:
            write_group(folder, self.retry_group)
        self.folder = folder
        name = f"link-{self.line}-{len(self.brokers)}"
        settings = {**SMALL_FILES, **FLUSH_OFTEN}
        broker = OfficialBroker(self.line, name, folder, [self.name_server], settings)
        self.brokers.append(broker)
        broker.process.start()
        broker.wait_ready()
        return broker

    def send(
        self, messages: Sequence[Listed], *, batch: bool = False, compression: str = "ZLIB"
    ) -> None:
        """Send messages with the official client, and remember them."""
        offset_ids = self.driver.produce_listed(
            self.name_server, self.topic, messages, batch=batch, compression=compression
        )
        self.sent |= dict(zip(offset_ids, messages, strict=True))
        self.offset_ids |= offset_ids

    def send_every_kind(self) -> None:
        """Send what an official client can send; the delayed ones last, to be due later."""
        self.send(
            [
                Listed(body=f"plain {n} ".ljust(PLAIN_BYTES, "x"), keys=f"key-{n}", flag=n)
                for n in range(PLAIN)
            ]
        )
        self.send([Listed(body=f"batch {n}", keys=f"batch-{n}") for n in range(10)], batch=True)
        self.send(
            [
                Listed(
                    body="☃ 🚀", tags="метка-é", keys=" ".join(KEYS), properties=PROPERTIES, flag=-1
                )
            ]
        )
        for kind in ("ZLIB", "LZ4", "ZSTD"):
            self.send([Listed(body=f"{kind} {PACKED_BODY}", keys=kind)], compression=kind)
        self._transact()
        self.send([Listed(body=f"delayed {n}", keys=f"delay-{n}", delay_level=n) for n in (1, 3)])

    def _transact(self) -> None:
        name = f"transactions-{self.topic}"
        self.driver.open_transactions(name, self.name_server, group=name, topic="BenchmarkTest")
        messages = [
            Listed(body="committed", keys="committed", ending="COMMIT_MESSAGE"),
            Listed(body="rolled back", keys="rolled-back", ending="ROLLBACK_MESSAGE"),
        ]
        committed, rolled_back = self.driver.transact(name, self.topic, messages)
        self.driver.close_producer(name)
        self.sent[committed] = messages[0]
        self.rolled_back_ids.add(rolled_back)

    @property
    def retry_group(self) -> str:
        """The group that turned a message down."""
        return RETRY_GROUPS[self.line]

    def send_back(self) -> None:
        """Turn a message down as a consumer does, and wait until it comes again.

        By a request of our own: official clients by now refuse the name, and brokers make no such
        group either, but serve one that an older release made.
        """
        broker = self.brokers[-1].address
        offset = int(next(iter(self.offset_ids.values()))[-16:], 16)
        wire.send_back(broker, offset, group=self.retry_group, topic=self.topic)
        wait_until(
            lambda: wire.max_offset(broker, f"%RETRY%{self.retry_group}", 0) == 1,
            timeout_s=CLIENT_TIMEOUT_S,
            what=f"a message to be retried by {self.retry_group}",
        )

    def consume(self) -> dict[str, Received]:
        """Receive what the topic holds with the official client, by id."""
        group = f"group-{self.topic}-{len(self.brokers)}"
        received = self.driver.consume(self.name_server, self.topic, len(self.sent), group=group)
        return {message.message_id: message for message in received}

    def find(self) -> dict[str, list[Received]]:
        """Find what the topic holds by each key, once there is something for all: indexes come last."""
        keys = [key for listed in self.sent.values() for key in listed.keys.split(" ")]
        found: dict[str, list[Received]] = {}

        def is_whole() -> bool:
            found.update(self.driver.find(self.name_server, self.topic, keys))
            return all(found.values())

        wait_until(is_whole, timeout_s=CLIENT_TIMEOUT_S, what=f"all keys of {self.topic} found")
        return found


def read_live(chain: Chain) -> Live:
    """Read beside the broker, until all that was sent without a delay is visible."""
    awaited = {message_id for message_id, listed in chain.sent.items() if not listed.delay_level}
    with ReadOnlyStore(chain.folder / "store") as store:

        def shows_all() -> bool:
            store.refresh()
            return awaited <= ids()

        def ids() -> set[str]:
            return {
                message.properties["UNIQ_KEY"]
                for bounds in store.queues(chain.topic)
                for message in store.messages(chain.topic, bounds.queue_id, bounds.start, 1000)
            }

        wait_until(shows_all, timeout_s=CLIENT_TIMEOUT_S, what="a reader sees all that was sent")
        return Live(state=store.state, offsets=[at for at, _ in store.records()], ids=ids())
