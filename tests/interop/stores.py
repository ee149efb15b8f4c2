"""Store directories that both brokers open: files so small that there are several of each kind."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from pathlib import Path

from orbitmq.record.decode import StoredMessage, decode_record
from orbitmq.record.hosts import encode_host
from orbitmq.record.layout import SystemFlag
from orbitmq.record.properties import encode_properties
from orbitmq.store.config import StoreConfig
from orbitmq.store.log.draft import Draft
from orbitmq.store.message_store import MessageStore

LOG_FILE_BYTES = 64 * 1024
QUEUE_FILE_BYTES = 20 * 40
INDEX_SLOTS = 50
INDEX_ENTRIES = 200

# The same sizes as an official broker is told them.
SMALL_FILES = {
    "mappedFileSizeCommitLog": str(LOG_FILE_BYTES),
    "mappedFileSizeConsumeQueue": str(QUEUE_FILE_BYTES),
    "maxHashSlotNum": str(INDEX_SLOTS),
    "maxIndexNum": str(INDEX_ENTRIES),
}

QUEUES = 4


def open_store(folder: Path, *, store_host: tuple[str, int] = ("127.0.0.1", 1)) -> MessageStore:
    """Open the store in the folder of an official broker, as the broker would."""
    return MessageStore(
        StoreConfig(
            root=folder / "store",
            log_file_bytes=LOG_FILE_BYTES,
            queue_file_bytes=QUEUE_FILE_BYTES,
            index_slots=INDEX_SLOTS,
            index_entries=INDEX_ENTRIES,
        ),
        store_host=store_host,
    )


def draft(topic: str, number: int) -> Draft:
    """Make one of many messages, `message 0` and so on; every fifth is compressed."""
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


def write_topics(folder: Path, queues_by_topic: Mapping[str, int]) -> None:
    """Write the topics that a broker finds when it starts.

    The one way to a topic of more than 127 bytes: brokers make such topics for retries only, and
    refuse them by request.
    """
    topics = {
        topic: {
            "topicName": topic,
            "readQueueNums": queues,
            "writeQueueNums": queues,
            "perm": 6,
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": 0,
            "order": False,
        }
        for topic, queues in queues_by_topic.items()
    }
    _write_table(folder, "topics.json", "topicConfigTable", topics)


def write_group(folder: Path, group: str) -> None:
    """Write a consumer group that a broker finds when it starts; its name may be a long one."""
    _write_table(
        folder, "subscriptionGroup.json", "subscriptionGroupTable", {group: {"groupName": group}}
    )


def _write_table(folder: Path, name: str, table: str, rows: Mapping[str, object]) -> None:
    file = folder / "store" / "config" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"dataVersion": {"counter": 1, "timestamp": 1}, table: rows}))


def read_all(store: MessageStore, topic: str) -> list[StoredMessage]:
    """Read all messages of a topic by its queues."""
    messages: list[StoredMessage] = []
    for queue_id in range(QUEUES):
        offset = store.start_of(topic, queue_id)
        while (read := store.read(topic, queue_id, offset)).records:
            messages += map(decode_record, read.records)
            offset = read.next_offset
    return messages
