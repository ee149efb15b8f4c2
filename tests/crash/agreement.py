"""Do log, queues and index of an open store agree? One check, used by every crash test."""

from __future__ import annotations

from collections.abc import Set
from pathlib import Path
from typing import TYPE_CHECKING

from orbitmq.record.decode import Found, StoredMessage, Verdict, decode_record, locate
from orbitmq.record.layout import is_queued
from orbitmq.record.scan import message_keys, record_tag_code
from orbitmq.store.delay_levels import parse_delay_levels
from orbitmq.store.opening.parts import log_folders

if TYPE_CHECKING:
    from orbitmq.store.config import StoreConfig
    from orbitmq.store.message_store import MessageStore

Queues = dict[tuple[str, int], list[StoredMessage]]


def check_agreement(
    store: MessageStore, config: StoreConfig, *, deleted_topics: Set[str] = frozenset()
) -> Queues:
    """Assert that a store just opened agrees with itself; return its messages by queue."""
    messages = messages_in_log(store, config)
    queues: Queues = {}
    for message in messages:
        if is_queued(message.system_flag) and message.topic not in deleted_topics:
            queues.setdefault((message.topic, message.queue_id), []).append(message)
    assert store.visible == store.log_end
    assert [message.store_ms for message in messages] == sorted(m.store_ms for m in messages)
    levels = parse_delay_levels(config.delay_levels)
    for key, expected in queues.items():
        _check_queue(store, key, expected, levels)
    for queue in store.queues():
        if queue.end > queue.start:
            assert (queue.topic, queue.queue_id) in queues, f"{queue.topic} has stray entries"
    if config.index_enable:
        _check_keys(store, messages)
    return queues


def messages_in_log(store: MessageStore, config: StoreConfig) -> list[StoredMessage]:
    """Read the log's files alone; everything after the log's end must be zero."""
    messages: list[StoredMessage] = []
    for path in _log_files(config):
        content = path.read_bytes()
        base = int(path.name)
        at = 0
        while base + at < store.log_end and at < len(content):
            found = locate(content, at, len(content), check_body=True)
            if isinstance(found, Found):
                assert found.verdict is Verdict.BLANK, f"{path.name} at {at}: {found}"
                at = len(content)
                break
            message = decode_record(content, at)
            assert message.physical_offset == base + at
            assert b"\0" not in message.properties_bytes, "a page of it is missing"
            messages.append(message)
            at += message.size
        assert not any(content[at:]) or at == len(content), f"{path.name}: leftovers from {at} on"
    return messages


def _log_files(config: StoreConfig) -> list[Path]:
    folders = log_folders(config.root, config.log_path)
    paths = [path for folder in folders if folder.is_dir() for path in folder.iterdir()]
    return sorted(paths, key=lambda path: path.name)


def _check_queue(
    store: MessageStore,
    key: tuple[str, int],
    expected: list[StoredMessage],
    levels: tuple[int, ...],
) -> None:
    topic, queue_id = key
    queue = next(q for q in store.parts.queues if (q.topic, q.queue_id) == key)
    assert store.start_of(topic, queue_id) == expected[0].queue_offset
    assert store.end_of(topic, queue_id) == expected[-1].queue_offset + 1
    assert store.end_of(topic, queue_id, committed=False) == store.end_of(topic, queue_id)
    for number, message in enumerate(expected, expected[0].queue_offset):
        assert message.queue_offset == number
        tag = record_tag_code(topic.encode(), message.properties_bytes, message.store_ms, levels)
        assert queue.entry(type(queue.end)(number)) == (message.physical_offset, message.size, tag)
    read: list[bytes] = []
    offset = int(store.start_of(topic, queue_id))
    while offset < store.end_of(topic, queue_id):
        found = store.read(topic, queue_id, offset)
        read += found.records
        offset = found.next_offset
    assert [decode_record(record).stored_body for record in read] == [
        message.stored_body for message in expected
    ]


def _check_keys(store: MessageStore, messages: list[StoredMessage]) -> None:
    expected: dict[tuple[str, bytes], list[int]] = {}
    for message in messages:
        for key in dict.fromkeys(message_keys(message.properties_bytes)):
            expected.setdefault((message.topic, key), []).append(message.physical_offset)
    for (topic, key), offsets in expected.items():
        found = store.find(topic, key.decode(), count_max=10_000)
        assert [message.physical_offset for message in found] == offsets, f"key {key!r}"
