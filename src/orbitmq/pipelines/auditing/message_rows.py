"""Messages of a range of the log as rows, with their unique keys and numbers.

Read from the log and not through queues, so that damaged queues hide none. Copies are left out: what
is in retry topics, dead letters and system topics (delayed and prepared messages), and what no
consumer gets.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from orbitmq.errors import OrbitError
from orbitmq.model import property_names
from orbitmq.model.names import is_group_topic, is_system_topic
from orbitmq.record.decode import FieldPositions, locate
from orbitmq.record.layout import SYSTEM_FLAG_AT, is_queued
from orbitmq.record.properties import find_property
from orbitmq.store.index.deleted_topics import DeletedTopics
from orbitmq.store.log.stand_ins import is_stand_in
from orbitmq.store.opening.parts import OWN_FOLDER
from orbitmq.store.readonly.readonly_store import ReadOnlyStore
from orbitmq.store.tools.range_verification import record_borders
from orbitmq.store.tools.record_search import next_record

if TYPE_CHECKING:
    from orbitmq.model.queues import PhysicalOffset
    from orbitmq.pipelines.auditing.work import StoreRange
    from orbitmq.record.decode import Found
    from orbitmq.store.readonly.log_files import WalkedChunk

SCHEMA: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("broker", pa.string()),
        ("queueId", pa.int32()),
        ("queueOffset", pa.int64()),
        ("uniqueKey", pa.string()),
        ("number", pa.string()),
        ("sequence", pa.string()),
    ]
)
SCHEMA_TEXT: Final = (
    "topic string, broker string, queueId int, queueOffset bigint, uniqueKey string, "
    "number string, sequence string"
)
_UNIQUE_ID: Final = property_names.UNIQUE_ID.encode()
_INT: Final = struct.Struct(">i")
# Queue id, user flag, queue offset.
_QUEUE: Final = struct.Struct(">iiq")
_QUEUE_AT: Final = 12

_Row = tuple[str, str, int, int, str | None, str | None, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is read of each message."""

    with_keys: bool
    sequence_property: str | None
    sequence_per: str | None


def message_rows(item: StoreRange, broker: str, wanted: Wanted) -> Iterator[pa.RecordBatch]:
    """The messages of a range of the log, a chunk of the log at a time."""
    part = item.part
    with ReadOnlyStore(item.root, log_path=item.log_path) as store:
        log = store.log
        file = log.find_file(part.start)
        if file is None:
            # It is missing, or retention deleted it.
            return
        start, end = record_borders(log, part.start, part.end, part.log_end)

        def skip(offset: PhysicalOffset, _: Found) -> PhysicalOffset:
            return type(offset)(min(next_record(log, file, offset + 1), max(end, offset + 1)))

        chunks = _Chunks(broker, wanted, DeletedTopics(Path(item.root) / OWN_FOLDER))
        try:
            for chunk in log.walk(start, end, limit=part.log_end, on_damage=skip):
                yield chunks.batch(chunk)
        except (OrbitError, OSError):
            # The task that verifies this range says what is wrong.
            return


class _Chunks:
    """Makes rows of chunks of a log."""

    def __init__(self, broker: str, wanted: Wanted, deleted_topics: DeletedTopics) -> None:
        self._broker = broker
        self._wanted = wanted
        self._deleted_topics = deleted_topics
        # Whether a topic's messages are wanted.
        self._topics: dict[bytes, bool] = {}

    def batch(self, chunk: WalkedChunk) -> pa.RecordBatch:
        """The messages of a chunk."""
        rows: list[_Row] = []
        at = 0
        while at < chunk.found.position:
            places = locate(chunk.content, at, chunk.found.position, check_body=False)
            assert isinstance(places, FieldPositions)
            row = self._row(chunk, places)
            if row is not None:
                rows.append(row)
            at = places.end
        columns = list(zip(*rows, strict=True)) or [()] * len(SCHEMA)
        arrays = [pa.array(column, one.type) for column, one in zip(columns, SCHEMA, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)

    def _row(self, chunk: WalkedChunk, places: FieldPositions) -> _Row | None:
        content, at = chunk.content, places.at
        topic = content[places.topic_at : places.topic_end]
        (system_flag,) = _INT.unpack_from(content, at + SYSTEM_FLAG_AT)
        if not (
            self._is_wanted(topic)
            and is_queued(system_flag)
            and not is_stand_in(content, at)
            and not self._deleted_topics.is_deleted(topic, chunk.offset + at)
        ):
            return None
        properties = content[places.properties_at : places.end]
        wanted = self._wanted
        queue_id, _, queue_offset = _QUEUE.unpack_from(content, at + _QUEUE_AT)
        key = find_property(properties, _UNIQUE_ID) if wanted.with_keys else None
        number = _property(properties, wanted.sequence_property)
        if not key and number is None:
            return None
        return (
            topic.decode(errors="replace"),
            self._broker,
            queue_id,
            queue_offset,
            key.decode(errors="replace") if key else None,
            number,
            _property(properties, wanted.sequence_per) or "",
        )

    def _is_wanted(self, topic: bytes) -> bool:
        known = self._topics.get(topic)
        if known is None:
            name = topic.decode(errors="replace")
            known = self._topics[topic] = not (is_system_topic(name) or is_group_topic(name))
        return known


def _property(properties: bytes, name: str | None) -> str | None:
    found = find_property(properties, name.encode()) if name is not None else None
    return None if found is None else found.decode(errors="replace")
