"""One store with every kind of record that we can write, and what Java must make of each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum

from orbitmq.record.compression import Compression, compress
from orbitmq.record.hosts import encode_host
from orbitmq.record.layout import TOPIC_BYTES_MAX, TOPIC_BYTES_MAX_V1, SystemFlag
from orbitmq.record.properties import encode_properties
from orbitmq.store.log.draft import Draft, Receipt
from orbitmq.store.message_store import MessageStore
from tests.interop.stores import QUEUES

DELAY_TOPIC = "SCHEDULE_TOPIC_XXXX"
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
DONE_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
TRANSACTION_GROUP = "interop-transactions"

PLAIN = 160
BATCHES = 5
BATCH = 8
RETRIES = 3
V2_RECORDS = 8
SHARED_KEY = "shared"
UNICODE_TAGS = "метка-é"
UNICODE_KEYS = ("schlüssel", "鍵", "🔑")
USER_PROPERTIES = {"größe": "12 € 🚀", "empty-looking": " "}


class Outcome(Enum):
    """What becomes of a record in a broker that opens the store."""

    CONSUMED = "a consumer gets it"
    DELIVERED = "the broker puts it into its topic, and a consumer gets it from there"
    INDEXED = "it is found by key, and no consumer gets it"
    HIDDEN = "it is neither found nor consumed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A record, and what Java must show of it."""

    draft: Draft
    message_id: str
    body: str
    tags: str | None
    keys: tuple[str, ...]
    properties: dict[str, str]
    outcome: Outcome

    @property
    def is_consumed(self) -> bool:
        return self.outcome in (Outcome.CONSUMED, Outcome.DELIVERED)


class EveryKind:
    """The records of one store, written down batch by batch."""

    def __init__(self, topic: str, *, group: str, born_ms: int, with_v2: bool) -> None:
        self.topic = topic
        self.group = group
        self.retry_topic = f"%RETRY%{group}"
        # The longest name that a V1 record can hold.
        self.longest_topic = topic.ljust(TOPIC_BYTES_MAX_V1, "-")
        # Too long for a V1 record, and as long as the name of a folder may be.
        self.v2_topic = topic.ljust(TOPIC_BYTES_MAX, "-") if with_v2 else None
        self._born_ms = born_ms
        self._numbers = iter(range(1_000_000))
        self.batches: list[list[Written]] = []
        self._half_offsets: list[int] = []
        self.batches += self._plain()
        self.batches += [[one] for one in self._single()]

    @property
    def queues_by_topic(self) -> dict[str, int]:
        """The topics that the broker must know."""
        topics = {self.topic: QUEUES, self.longest_topic: QUEUES, self.retry_topic: 1}
        return topics | ({self.v2_topic: QUEUES} if self.v2_topic is not None else {})

    def __iter__(self) -> Iterator[Written]:
        return (one for batch in self.batches for one in batch)

    def put(self, store: MessageStore, batches: list[list[Written]]) -> list[Receipt]:
        """Write some of the batches."""
        receipts: list[Receipt] = []
        for batch in batches:
            drafts = [replace(one.draft, prepared_offset=self._half_of(one)) for one in batch]
            receipts += store.append_batch(drafts)
            if batch[0].draft.topic == HALF_TOPIC:
                self._half_offsets.append(receipts[-1].physical_offset)
        return store.confirm(receipts)

    def _half_of(self, one: Written) -> int:
        """A committed message knows where its half lies; ours is that of the first half."""
        committed = one.draft.system_flag & SystemFlag.ROLLED_BACK == SystemFlag.COMMITTED
        return self._half_offsets[0] if committed else 0

    def _plain(self) -> Iterator[list[Written]]:
        for number in range(PLAIN):
            body = f"plain {number} " + "x" * (number * 37 % 900)
            yield [self._one(body, queue_id=number % QUEUES, flag=number)]
        for number in range(BATCHES):
            yield [
                self._one(f"batch {number}, {place}", queue_id=number % QUEUES)
                for place in range(BATCH)
            ]

    def _single(self) -> Iterator[Written]:
        yield from self._odd_ones()
        yield from self._packed()
        yield from self._delayed()
        yield from self._transactions()
        for number in range(RETRIES):
            yield self._one(
                f"retry {number}",
                topic=self.retry_topic,
                properties={"RETRY_TOPIC": self.topic},
                reconsume_times=number + 1,
            )
        yield self._one("longest topic", topic=self.longest_topic)
        # Compat: a consumer of 4.9 fails on a message without a body, so none is to get this one.
        yield self._one("", topic=self.longest_topic, outcome=Outcome.INDEXED)
        for number in range(V2_RECORDS if self.v2_topic is not None else 0):
            yield self._one(
                f"V2 {number}",
                topic=self.v2_topic,
                queue_id=number % QUEUES,
                keys=(f"v2-{number}",),
            )

    def _odd_ones(self) -> Iterator[Written]:
        yield self._one("IPv6", born_host=encode_host("2001:db8::1", 4711))
        for flag in (-1, -(2**31), 2**31 - 1):
            yield self._one(f"flag {flag}", flag=flag)
        yield self._one("snowman ☃ and 🚀", tags=UNICODE_TAGS, keys=UNICODE_KEYS)
        yield self._one("no tags", tags=None)
        yield self._one("no keys", keys=())
        yield self._one("many keys", keys=tuple(f"of-many-{number}" for number in range(20)))
        yield self._one("long property", properties={"long": "ü" * 15_000})

    def _packed(self) -> Iterator[Written]:
        body = "repeated " * 200
        for kind in Compression:
            yield self._one(
                f"{kind.name} {body}",
                packed=compress(f"{kind.name} {body}".encode(), kind),
                system_flag=SystemFlag.COMPRESSED | kind.value,
            )
        yield self._one(
            f"no kind {body}",
            packed=compress(f"no kind {body}".encode(), Compression.ZLIB),
            system_flag=SystemFlag.COMPRESSED,
        )

    def _delayed(self) -> Iterator[Written]:
        for level in (1, 2):
            yield self._one(
                f"delayed by level {level}",
                topic=DELAY_TOPIC,
                queue_id=level - 1,
                properties={"DELAY": str(level), "REAL_TOPIC": self.topic, "REAL_QID": "3"},
                outcome=Outcome.DELIVERED,
            )

    def _transactions(self) -> Iterator[Written]:
        half = {
            "PGROUP": TRANSACTION_GROUP,
            "TRAN_MSG": "true",
            "REAL_TOPIC": self.topic,
            "REAL_QID": "2",
        }
        for ending in ("committed", "rolled back"):
            yield self._one(
                f"half {ending}", topic=HALF_TOPIC, properties=half, outcome=Outcome.INDEXED
            )
        # A producer is asked about this one, and commits it.
        yield self._one("half open", topic=HALF_TOPIC, properties=half, outcome=Outcome.DELIVERED)
        for number in (0, 1):
            yield self._one(str(number), topic=DONE_TOPIC, tags="d", outcome=Outcome.HIDDEN)
        yield self._one("committed", system_flag=SystemFlag.COMMITTED)
        # Compat: RocketMQ 3 wrote these two into the topic itself.
        yield self._one("prepared", system_flag=SystemFlag.PREPARED, outcome=Outcome.INDEXED)
        yield self._one("rolled back", system_flag=SystemFlag.ROLLED_BACK, outcome=Outcome.HIDDEN)

    def _one(
        self,
        body: str,
        *,
        topic: str | None = None,
        queue_id: int = 0,
        packed: bytes | None = None,
        tags: str | None = "interop",
        keys: tuple[str, ...] = (SHARED_KEY,),
        properties: dict[str, str] | None = None,
        outcome: Outcome = Outcome.CONSUMED,
        system_flag: int = 0,
        flag: int = 0,
        born_host: bytes = encode_host("127.0.0.1", 4711),
        reconsume_times: int = 0,
    ) -> Written:
        number = next(self._numbers)
        message_id = f"{number:032X}"
        if keys == (SHARED_KEY,):
            keys = (f"key-{number}", SHARED_KEY)
        every_property = {
            "UNIQ_KEY": message_id,
            **({"TAGS": tags} if tags is not None else {}),
            **({"KEYS": " ".join(keys)} if keys else {}),
            **USER_PROPERTIES,
            **(properties or {}),
        }
        return Written(
            draft=Draft(
                topic=topic or self.topic,
                queue_id=queue_id,
                body=body.encode() if packed is None else packed,
                system_flag=system_flag,
                properties=encode_properties(every_property),
                born_ms=self._born_ms + number,
                born_host=born_host,
                flag=flag,
                reconsume_times=reconsume_times,
            ),
            message_id=message_id,
            body=body,
            tags=tags,
            keys=keys,
            # A broker that delivers a message takes its own properties out.
            properties=every_property if outcome is Outcome.CONSUMED else USER_PROPERTIES,
            outcome=outcome,
        )
