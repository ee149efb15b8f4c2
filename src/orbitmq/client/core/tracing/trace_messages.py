"""Trace messages: records put together, as many as fit; and their topic."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from orbitmq.client.core.tracing.trace_records import TraceRecord, encode_record, lookup_keys
from orbitmq.model.names import is_system_topic

# Compat: Java splits trace messages at this size.
_BODY_BYTES_MAX: Final = 128_000
# Half of what the properties of a message may take: the ids and keys are among them.
_KEYS_BYTES_MAX: Final = 16_000


@dataclass(slots=True)
class TraceBatch:
    """The content of one trace message."""

    count: int = 0
    body: bytes = b""
    # What tools find it by, each once, in order.
    keys: dict[str, None] = field(default_factory=dict)
    keys_bytes: int = 0

    def add(self, record: TraceRecord) -> bool:
        """Add a record; False if it does not fit any more."""
        text = encode_record(record).encode(errors="replace")
        # Keys that cannot be encoded would make the message impossible to send.
        new = [key for key in lookup_keys(record) if key not in self.keys and _is_sendable(key)]
        new_bytes = sum(len(key.encode()) + 1 for key in new)
        is_full = (
            len(self.body) + len(text) > _BODY_BYTES_MAX
            or self.keys_bytes + new_bytes > _KEYS_BYTES_MAX
        )
        if is_full and self.count:
            return False
        if is_full:
            # A record too large for any message keeps its id: its keys alone can be that long.
            new = new[:1]
            new_bytes = sum(len(key.encode()) + 1 for key in new)
        self.count += 1
        self.body += text
        self.keys |= dict.fromkeys(new)
        self.keys_bytes += new_bytes
        return True


def _is_sendable(key: str) -> bool:
    try:
        key.encode()
    except UnicodeEncodeError:
        return False
    return bool(key) and not any(separator in key for separator in "\x01\x02 ")


def batches_of(records: Iterable[TraceRecord], *, count_max: int) -> list[TraceBatch]:
    """Put records into batches of up to `count_max`, in order."""
    batches: list[TraceBatch] = []
    for record in records:
        if not batches or batches[-1].count == count_max or not batches[-1].add(record):
            batches.append(TraceBatch())
            batches[-1].add(record)
    return batches


def missing_topic_hint(topic: str) -> str:
    """Say what to do about a trace topic that is missing."""
    if is_system_topic(topic):
        # Brokers refuse to create these on request.
        return (
            "start the brokers with traceTopicEnable=true, or create a topic of your own, and name "
            "it: trace_topic=… for clients, --trace-topic for orbitmq message trace"
        )
    return f"create it with: orbitmq topic create {topic}"
