"""Rows as clients read them, and records to read: usual and odd ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from orbitmq.client.core.consuming.received_message import received_messages
from orbitmq.record.compression import Compression, compress
from orbitmq.record.decode import decode_record
from orbitmq.record.hosts import encode_host
from orbitmq.record.layout import COMPRESSED
from orbitmq.spark.options.column_names import COLUMN_NAMES
from orbitmq.spark.rows.plain_rows import Positions
from orbitmq.spark.rows.schema import Projection, PropertiesForm, table_projection
from tests.unit.record.sample_records import INT_32, INT_64, KNOWN, Sample, samples

BROKER: Final = "broker-a"
TIMESTAMP_MAX_MS: Final = (2**63 - 1) // 1000


def all_columns(
    *, properties: PropertiesForm = "string", without: Sequence[str] = ()
) -> Projection:
    """A projection of every column but some."""
    names = [name for name in COLUMN_NAMES if name not in without]
    return table_projection(names, properties=properties)


def joined(records: Sequence[bytes], *, gaps: Sequence[bytes] = ()) -> tuple[bytes, Positions]:
    """Records with other bytes before each, and where they start."""
    buffer = bytearray()
    positions: list[int] = []
    for number, record in enumerate(records):
        buffer += gaps[number % len(gaps)] if gaps else b""
        positions.append(len(buffer))
        buffer += record
    return bytes(buffer), np.array(positions, dtype=np.int64)


def record_at(buffer: bytes, at: int) -> bytes:
    """The bytes of the record that starts at a position; raises ProtocolError if there is none."""
    return buffer[at : at + decode_record(buffer, at).size]


def plain_row(record: bytes, projection: Projection) -> dict[str, Any]:
    """What each column must hold."""
    (received,) = received_messages(record, BROKER)
    stored = decode_record(record)
    properties = dict(received.properties)
    row = {
        "topic": stored.topic,
        "brokerName": BROKER,
        "queueId": received.queue_id,
        "queueOffset": received.queue_offset,
        "physicalOffset": received.physical_offset,
        "msgId": properties.get("UNIQ_KEY", received.offset_message_id),
        "keys": properties.get("KEYS"),
        "tags": properties.get("TAGS"),
        "flag": received.flag,
        "properties": list(properties.items())
        if projection.properties == "map"
        else stored.properties_bytes.decode(errors="replace"),
        "body": received.body,
        "bornTimestamp": _microseconds(received.born_ms),
        "storeTimestamp": _microseconds(received.store_ms),
        "bornHost": _host(*received.born_host),
        "storeHost": _host(*received.store_host),
        "sysFlag": received.system_flag & ~(COMPRESSED if stored.stored_body else 0),
        "reconsumeTimes": received.reconsume_times,
    }
    return {name: row[name] for name in projection.names}


def rows_of(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows of a batch; times in microseconds, since Python's own end with the year 9999."""
    columns = [
        column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
        for column in batch.columns
    ]
    rows: list[dict[str, Any]] = pa.RecordBatch.from_arrays(
        columns, names=batch.schema.names
    ).to_pylist()
    return rows


def _microseconds(time_ms: int) -> int:
    return max(-TIMESTAMP_MAX_MS, min(time_ms, TIMESTAMP_MAX_MS)) * 1000


def _host(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


# --- records ------------------------------------------------------------------------------------

_NAMES: Final = st.sampled_from(["KEYS", "TAGS", "UNIQ_KEY", "WAIT", "WAITING", "größe", "k", "0"])
_VALUES: Final = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), min_size=1, max_size=8
)
# Names, values and separators: valid, invalid and partial.
_PARTS: Final = st.sampled_from(
    [
        *(b"KEYS", b"TAGS", b"UNIQ_KEY", b"KEYS\x01a", b"TAGS\x01t\x02", b"UNIQ_KEY\x01u\x02"),
        *(b"\x01", b"\x02", b"\x00", b"\x02\x02", b"\x01\x01", b"=", b"v", "é".encode()),
        *(b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf0\x9f"),
    ]
)
_ORDINARY: Final = st.lists(st.tuples(_NAMES, _VALUES), max_size=5, unique_by=lambda p: p[0])
_REPEATING: Final = st.lists(st.tuples(_NAMES, _VALUES), max_size=8)


@st.composite
def properties(draw: st.DrawFn) -> bytes:
    """Properties of every kind; most are well formed."""
    match draw(st.sampled_from(["pairs", "pairs", "pairs", "open", "repeating", "parts", "many"])):
        case "parts":
            return b"".join(draw(st.lists(_PARTS, max_size=8)))
        case "many":
            # About the limit of maps in the compiled form.
            pairs = [(f"n{number}", "v") for number in range(draw(st.integers(60, 70)))]
        case "repeating":
            pairs = draw(_REPEATING)
        case _:
            pairs = draw(_ORDINARY)
    text = "".join(f"{name}\x01{value}\x02" for name, value in pairs)
    return (text[:-1] if draw(st.booleans()) else text).encode()


_BODIES: Final = st.binary(max_size=40)
_TOPICS: Final = st.one_of(
    st.sampled_from([b"orders", b"orders", "тема".encode(), b"t" * 127, b"t" * 128, b"u" * 255]),
    st.binary(max_size=6),
)


_HOSTS_V6: Final = st.builds(
    encode_host,
    st.sampled_from(
        [
            *("2001:db8::7", "2001:db8::7", "::", "::1", "::ffff:10.1.2.3", "::10.1.2.3"),
            *("fe80::1:0:0:1", "1:0:2:0:3:0:4:0", "1::", "abcd:ef01:2345:6789:abcd:ef01:2345:6789"),
        ]
    ),
    st.sampled_from([10911, 10911, 0, 65535, 65536, -1]),
)


@st.composite
def row_samples(draw: st.DrawFn) -> Sample:
    """A record as a broker could have stored it."""
    if draw(st.integers(0, 9)) == 0:
        anything = draw(samples())
        return replace(anything, system_flag=anything.system_flag & ~COMPRESSED)
    body, flag = draw(_BODIES), 0
    if draw(st.integers(0, 4)) == 0:
        kind = draw(st.sampled_from(Compression))
        flag = COMPRESSED | draw(
            st.sampled_from([kind.value, 0] if kind is Compression.ZLIB else [kind.value])
        )
        body = compress(body, kind) if draw(st.booleans()) or body else b""
    sample = replace(
        KNOWN,
        topic=draw(_TOPICS),
        queue_id=draw(st.integers(0, 9)),
        queue_offset=draw(st.integers(0, 2**40)),
        physical_offset=draw(INT_64),
        body=body,
        properties=draw(properties()),
        flag=draw(INT_32),
        system_flag=flag | draw(st.sampled_from([0, 0, 0, 2, 4, 8, 12])),
        born_ms=draw(st.one_of(st.just(KNOWN.born_ms), INT_64)),
        store_ms=draw(st.one_of(st.just(KNOWN.store_ms), INT_64)),
        reconsume_times=draw(st.integers(0, 16)),
    )
    if draw(st.integers(0, 4)) == 0:
        host = draw(_HOSTS_V6)
        sample = replace(sample, system_flag=sample.system_flag | 0x10, born_host=host)
    if draw(st.integers(0, 4)) == 0:
        host = draw(_HOSTS_V6)
        sample = replace(sample, system_flag=sample.system_flag | 0x20, store_host=host)
    return sample


@st.composite
def any_row_samples(draw: st.DrawFn) -> Sample:
    """A record that is sound except for its body, which may not be compressed."""
    sample = draw(row_samples())
    if draw(st.integers(0, 9)) == 0:
        flag = COMPRESSED | draw(st.sampled_from([0, 0x100, 0x200, 0x300, 0x400]))
        sample = replace(sample, body=b"not compressed", system_flag=flag)
        sample = replace(sample, born_host=KNOWN.born_host, store_host=KNOWN.store_host)
    return sample
