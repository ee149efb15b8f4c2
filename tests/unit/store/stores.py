"""Small parts to build store tests from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from orbitmq.model.queues import PhysicalOffset
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.config import StoreConfig
from orbitmq.store.draft import Draft
from orbitmq.store.message_store import MessageStore

LOG_FILE_BYTES = 64 * 1024
_ARGUMENTS = ("clock", "store_host", "retention", "measure")


def config_at(root: Path, **options: Any) -> StoreConfig:
    """A configuration with small files."""
    defaults: dict[str, Any] = {
        "log_file_bytes": LOG_FILE_BYTES,
        "queue_file_bytes": 40 * 20,
        "index_slots": 16,
        "index_entries": 20,
        "flush_interval_ms": 10,
        "queue_flush_interval_ms": 60_000,
    }
    return StoreConfig(root=root, **(defaults | options))


def open_store(root: Path, **options: Any) -> MessageStore:
    """Open a store with small files; arguments of `MessageStore` may be given."""
    arguments = {name: options.pop(name) for name in _ARGUMENTS if name in options}
    return MessageStore(config_at(root, **options), **arguments)


def write(log: CommitLog, content: bytes | bytearray) -> PhysicalOffset:
    """Add bytes to a log as the appender does; returns where they lie."""
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
