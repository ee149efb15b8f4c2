"""Small parts to build store tests from."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from orbitmq.model.queues import PhysicalOffset
from orbitmq.store.config import StoreConfig
from orbitmq.store.index.consume_queue import ENTRY
from orbitmq.store.log.commit_log import CommitLog
from orbitmq.store.log.draft import Draft
from orbitmq.store.log.stand_ins import stand_in_for_message
from orbitmq.store.message_store import MessageStore
from orbitmq.store.retention import RetentionConfig

LOG_FILE_BYTES = 64 * 1024
SELDOM = RetentionConfig(interval_ms=86_400_000)
_ARGUMENTS = ("clock", "store_host", "retention", "measure", "held", "is_copy", "copied_until")


def config_at(root: Path, **options: Any) -> StoreConfig:
    """A configuration with small files."""
    defaults: dict[str, Any] = {
        "log_file_bytes": LOG_FILE_BYTES,
        "queue_file_bytes": 40 * 20,
        "index_slots": 16,
        "index_entries": 20,
        "flush_interval_ms": 10,
        "queue_flush_interval_ms": 60_000,
        # Nothing happens in the background, even if a test pauses for a while.
        "flush_thorough_interval_ms": 3_600_000,
        "flush_timeout_ms": 60_000,
    }
    return StoreConfig(root=root, **(defaults | options))


def open_store(root: Path, **options: Any) -> MessageStore:
    """Open a store with small files; arguments of `MessageStore` may be given."""
    arguments = {name: options.pop(name) for name in _ARGUMENTS if name in options}
    return MessageStore(config_at(root, **options), **({"retention": SELDOM} | arguments))


def write(log: CommitLog, content: bytes | bytearray) -> PhysicalOffset:
    """Add bytes to a log as the appender does; returns their offset."""
    file = log.room(len(content))
    offset = log.end
    at = offset - file.first_offset
    file.view[at : at + len(content)] = content
    log.end = PhysicalOffset(offset + len(content))
    return offset


def message(body: bytes = b"body", **fields: Any) -> Draft:
    """A message of topic `orders`, queue 0, unless told otherwise."""
    properties = fields.pop("properties", {})
    encoded = "".join(f"{name}\x01{value}\x02" for name, value in properties.items()).encode()
    return Draft(**({"topic": "orders", "body": body, "properties": encoded} | fields))


def put_odd_messages(rng: random.Random, store: MessageStore) -> None:
    """Put messages with and without tags in three queues, some of them damaged."""
    for number in range(300):
        tag = rng.choice(["", "a", "b"])
        store.put(
            message(
                rng.randbytes(rng.choice([0, 10, 300, 2000])) + b"%d" % number,
                queue_id=rng.randrange(3),
                properties={"TAGS": tag} if tag else {},
            )
        )
    _spoil(rng, store)


def _spoil(rng: random.Random, store: MessageStore) -> None:
    """Damage some records or replace them by stand-ins; sometimes delete some of them."""
    log = store.parts.log
    for queue in store.parts.queues:
        for physical_offset, record_bytes, _ in ENTRY.iter_unpack(queue.entries(queue.start, 40)):
            file = log.file_at(physical_offset)
            assert file is not None
            at = physical_offset - file.first_offset
            chance = rng.random()
            if chance < 0.02:
                file.view[at + rng.randrange(record_bytes)] ^= 1 << rng.randrange(8)
            elif chance < 0.06:
                file.view[at : at + record_bytes] = stand_in_for_message(
                    record_bytes,
                    topic=queue.topic.encode(),
                    queue_id=queue.queue_id,
                    queue_offset=0,
                    physical_offset=physical_offset,
                    store_ms=1,
                )
            elif chance < 0.08:
                # A user may set the flag that stand-ins have.
                file.view[at + 16 : at + 20] = b"LOST"
    if rng.random() < 0.3 and len(log.files) > 1:
        log.delete_first()
