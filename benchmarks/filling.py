"""Fills stores for benchmarks that read, query, recover or count."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from benchmarks.messages import NOW_MS, body_of, properties_of
from orbitmq.store.config import FlushMode, StoreConfig
from orbitmq.store.log.draft import Draft
from orbitmq.store.message_store import MessageStore

TOPIC: Final = "orders"
BODY_BYTES: Final = 128
# So many messages are shown to readers at once.
_CHUNK: Final = 1024


def config_of(root: Path) -> StoreConfig:
    """RocketMQ's own file sizes; nothing waits for the disk."""
    return StoreConfig(root=root, flush_mode=FlushMode.ASYNC)


def fill(store: MessageStore, records: int, *, queues: int, batch: int = 1) -> None:
    """Append messages with keys, `batch` at a time to each queue in turn."""
    body = body_of(BODY_BYTES)
    for first in range(0, records, batch):
        store.append_batch(
            [
                Draft(
                    topic=TOPIC,
                    queue_id=first // batch % queues,
                    body=body,
                    properties=properties_of(number),
                    born_ms=NOW_MS,
                )
                for number in range(first, min(first + batch, records))
            ]
        )
        if first // batch % (_CHUNK // batch) == 0:
            store.publish()
    store.publish()


def read_once(path: Path, end: int) -> None:
    """Read a file up to a position, in large pieces."""
    piece = bytearray(1024 * 1024)
    with path.open("rb", buffering=0) as file:
        while end > 0:
            end -= file.readinto(piece) or end
