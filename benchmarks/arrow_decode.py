"""What do rows of Arrow cost, against reading records one by one, and against one copy?

    python -m benchmarks.arrow_decode [--rounds N] [--smoke]

The plain loop reads each record into a tuple of the same columns; making Arrow of these would cost
more, and is not counted. Measured as `rounds.py` says; each form is compared with both. With
ORBITMQ_PURE=1 in the environment, Arrow's rows are made without compiled code.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from pyspark.sql.types import BinaryType, StructField, StructType

from benchmarks.messages import HOST, body_of
from benchmarks.rounds import Form, Measured, measure, options, report
from benchmarks.scan import make_log
from orbitmq.model import property_names
from orbitmq.record.compression import Compression, compress
from orbitmq.record.decode import decode_record
from orbitmq.record.hosts import encode_host
from orbitmq.record.layout import BORN_HOST_V6, COMPRESSED, STORE_HOST_V6
from orbitmq.spark.options.column_names import COLUMN_NAMES
from orbitmq.spark.rows.row_decoder import RowDecoder, record_positions
from orbitmq.spark.rows.schema import Projection, projection_of, table_projection


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Records of one kind, and how many bytes of them a batch has."""

    body: bytes
    batch_bytes: int
    system_flag: int = 0
    host: bytes = HOST


def _text(body_bytes: int) -> bytes:
    """A body of words, which compresses to a fraction."""
    words = random.Random(1).choices(
        ["order", "item", "price", "paid", "open", "sent"], k=body_bytes
    )
    return " ".join(words).encode()[:body_bytes]


# Batches of 4,000 to 7,000 rows, as Spark likes them.
WORKLOADS: Final = {
    "128 B": Workload(body=body_of(128), batch_bytes=2 * 1024 * 1024),
    "1024 B": Workload(body=body_of(1024), batch_bytes=5 * 1024 * 1024),
    "128 B, IPv6 hosts": Workload(
        body=body_of(128),
        batch_bytes=2 * 1024 * 1024,
        system_flag=BORN_HOST_V6 | STORE_HOST_V6,
        host=encode_host("2001:db8::7", 10911),
    ),
    "1024 B, compressed by zlib": Workload(
        body=compress(_text(1024), Compression.ZLIB),
        batch_bytes=2 * 1024 * 1024,
        system_flag=COMPRESSED | Compression.ZLIB.value,
    ),
}
# Batches in one slice of a form that takes little time.
REPEATS: Final = 10
BROKER: Final = "broker-a"
PLAIN: Final = "plain loop, properties as text"
COPY: Final = "copying the bytes"
BODY_ONLY: Final = projection_of(StructType([StructField("body", BinaryType())]))
PROJECTIONS: Final = {
    "properties text": table_projection(COLUMN_NAMES),
    "properties map": table_projection(COLUMN_NAMES, properties="map"),
    "properties none": table_projection(name for name in COLUMN_NAMES if name != "properties"),
    "usual columns": table_projection(),
    "topic and body": table_projection(["topic", "body"]),
    "body only": BODY_ONLY,
}


def decode_forms(records: bytes, count: int, repeats: int) -> dict[str, Form]:
    """Each form reads one batch of records, some times over."""
    positions = record_positions(records)
    assert len(positions) == count

    def copy() -> int:
        for _ in range(repeats):
            bytearray(records)
        return count * repeats

    def walk() -> int:
        for _ in range(repeats):
            record_positions(records)
        return count * repeats

    def plain(*, as_map: bool) -> int:
        rows = [_plain_row(records, at, as_map=as_map) for at in positions.tolist()]
        return len(rows)

    def arrow(projection: Projection, *, check_bodies: bool = False) -> int:
        decoder = RowDecoder(projection, check_bodies=check_bodies)
        for _ in range(repeats):
            decoder.decode(records, positions, BROKER)
        return count * repeats

    return {
        COPY: copy,
        "finding the records": walk,
        PLAIN: partial(plain, as_map=False),
        "plain loop, properties as map": partial(plain, as_map=True),
        **{
            f"Arrow, {name}": partial(arrow, projection) for name, projection in PROJECTIONS.items()
        },
        "Arrow, body only, CRC checked": partial(arrow, BODY_ONLY, check_bodies=True),
    }


def _plain_row(records: bytes, at: int, *, as_map: bool) -> tuple[object, ...]:
    message = decode_record(records, at)
    properties = message.properties
    return (
        message.topic,
        BROKER,
        message.queue_id,
        message.queue_offset,
        message.physical_offset,
        properties.get(property_names.UNIQUE_ID) or message.message_id,
        properties.get(property_names.KEYS),
        properties.get(property_names.TAGS),
        message.flag,
        properties if as_map else message.properties_bytes.decode(errors="replace"),
        message.body,
        message.born_ms,
        message.store_ms,
        message.born_host,
        message.store_host,
        message.system_flag,
        message.reconsume_times,
    )


def main() -> None:
    """Measure, print the table and keep the results."""
    chosen = options("Compare the forms of decoding records.", rounds=7)
    measured: list[Measured] = []
    for workload, made_of in WORKLOADS.items():
        log, end, count = make_log(
            made_of.batch_bytes // 16 if chosen.smoke else made_of.batch_bytes,
            made_of.body,
            system_flag=made_of.system_flag,
            host=made_of.host,
        )
        slices = measure(
            workload,
            decode_forms(bytes(log[:end]), count, 1 if chosen.smoke else REPEATS),
            baseline=PLAIN,
            rounds=1 if chosen.smoke else chosen.rounds,
            seed=chosen.seed,
        )
        beside_copy = f"{workload}, beside a copy"
        measured += slices
        measured += [replace(entry, workload=beside_copy, baseline=COPY) for entry in slices]
    report("arrow_decode", measured, kept=not chosen.smoke)


if __name__ == "__main__":
    main()
