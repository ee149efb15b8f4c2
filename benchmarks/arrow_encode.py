"""What does writing rows of Arrow cost, against messages one by one, and against one copy?

    python -m benchmarks.arrow_encode [--rounds N] [--smoke]

All but the copy end with the body of a batch request, ids and marks included. "Sent" goes on from
there: to a broker in a process of its own, which answers when the rows are on disk; the CPU is that
of the client only. Measured as `rounds.py` says; each form is compared with both.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow as pa

from benchmarks.brokers import our_broker, running_name_server
from benchmarks.rounds import Form, Measured, measure, options, report
from orbitmq.client import Message, Producer
from orbitmq.client.core.sending.outgoing import MessagePreparer
from orbitmq.clock import SystemClock
from orbitmq.model.unique_ids import UniqueIdRanges, UniqueIds
from orbitmq.spark.options.write_options import WriteOptions
from orbitmq.spark.writing import writers
from orbitmq.spark.writing.delivery_marks import MARK, TaskMark
from orbitmq.spark.writing.message_rows import RowEncoder
from orbitmq.spark.writing.write_columns import WriteColumns
from orbitmq.spark.writing.writers import write_rows

# As many as Spark hands over at once.
ROWS: Final = 10_000
BODY_BYTES: Final = (128, 1024)
BATCH_ROWS: Final = 500
TOPIC: Final = "benchmark_rows"
COPY: Final = "copying the bodies"
PLAIN: Final = "messages one by one, keys and tags"
SENT_PLAIN: Final = "sent, messages one by one in batches of 500"
ADDRESS: Final = "127.0.0.1"
TASK: Final = TaskMark(query="0" * 32, batch=12, partition=3, attempt=0)


def rows_of(count: int, body_bytes: int) -> pa.RecordBatch:
    """Rows with all that a source gives and a sink takes, for each form to choose from."""
    made = random.Random(1)  # the same bytes each time
    stored = (
        "UNIQ_KEY\x017F0000010EB66DEC0000{0:012X}\x02KEYS\x01order-{0}\x02TAGS\x01paid\x02"
        "colour\x01red\x02MSG_REGION\x01DefaultRegion\x02TRACE_ON\x01true\x02CLUSTER\x01c"
    )
    return pa.RecordBatch.from_pydict(
        {
            "body": [made.randbytes(body_bytes) for _ in range(count)],
            "keys": [f"order-{number}" for number in range(count)],
            "tags": ["paid"] * count,
            "text": [stored.format(number) for number in range(count)],
            "map": pa.array(
                [[("colour", "red"), ("UNIQ_KEY", f"{number}")] for number in range(count)],
                pa.map_(pa.string(), pa.string()),
            ),
        }
    )


def encode_forms(rows: pa.RecordBatch) -> dict[str, Form]:
    """Each form writes all rows once."""
    now_ms = SystemClock().now_ms
    preparer = MessagePreparer(UniqueIds(ADDRESS, now_ms), body_bytes_max=2**31 - 1)
    bodies = rows["body"]

    def copy() -> int:
        bytes(bodies.buffers()[2])
        return len(rows)

    def plain() -> int:
        preparer.prepare(_messages(rows))
        return len(rows)

    def columns(*names: str) -> int:
        chosen = rows.select(list(names)).rename_columns(
            ["properties" if name in {"text", "map"} else name for name in names]
        )
        encoder = RowEncoder(
            WriteColumns(frozenset(chosen.schema.names)),
            TASK,
            UniqueIdRanges(ADDRESS, now_ms),
            body_bytes_max=2**31 - 1,
        )
        encoder.encode(chosen, 0)
        return len(rows)

    return {
        COPY: copy,
        PLAIN: plain,
        "Arrow, body only": partial(columns, "body"),
        "Arrow, keys and tags": partial(columns, "body", "keys", "tags"),
        "Arrow, keys, tags and a map": partial(columns, "body", "keys", "tags", "map"),
        "Arrow, keys, tags and stored properties": partial(columns, "body", "keys", "tags", "text"),
    }


def send_forms(rows: pa.RecordBatch, producer: Producer, name_server: str) -> dict[str, Form]:
    """Each form sends all rows once, and waits until they are stored."""
    chosen = rows.select(["body", "keys", "tags"])
    write_options = WriteOptions(namesrv=name_server, topic=TOPIC)

    def plain() -> int:
        messages = _messages(rows)
        futures = [
            producer.send_async(messages[start : start + BATCH_ROWS])
            for start in range(0, len(messages), BATCH_ROWS)
        ]
        for future in futures:
            future.result()
        return len(rows)

    def columns() -> int:
        named = WriteColumns(frozenset(chosen.schema.names))
        return write_rows(iter([chosen]), write_options, named, TASK).rows

    return {SENT_PLAIN: plain, "sent, Arrow, keys and tags": columns}


def _messages(rows: pa.RecordBatch) -> Sequence[Message]:
    return [
        Message(TOPIC, body, keys=(keys,), tags=tags, properties={MARK: f"{TASK.prefix}{number}"})
        for number, (body, keys, tags) in enumerate(
            zip(
                rows["body"].to_pylist(),
                rows["keys"].to_pylist(),
                rows["tags"].to_pylist(),
                strict=True,
            )
        )
    ]


def main() -> None:
    """Measure, print the table and keep the results."""
    chosen = options("Compare the forms of writing rows.", rounds=7)
    rounds = 1 if chosen.smoke else chosen.rounds
    measured: list[Measured] = []
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        name_server = opened.enter_context(running_name_server(folder / "name-server"))
        under_load = our_broker(folder / "broker", name_server, "SYNC_FLUSH")
        opened.callback(under_load.broker.process.kill)
        under_load.broker.process.start()
        under_load.broker.wait_ready()
        under_load.create_topic(TOPIC)
        producer = opened.enter_context(Producer("benchmark", namesrv=name_server))
        opened.callback(writers.stop_clients)
        for body_bytes in BODY_BYTES:
            rows = rows_of(ROWS // 20 if chosen.smoke else ROWS, body_bytes)
            workload = f"{body_bytes} B"
            slices = measure(
                workload, encode_forms(rows), baseline=PLAIN, rounds=rounds, seed=chosen.seed
            )
            measured += slices
            measured += [
                replace(entry, workload=f"{workload}, beside a copy", baseline=COPY)
                for entry in slices
            ]
            measured += measure(
                f"{workload}, sent",
                send_forms(rows, producer, name_server),
                baseline=SENT_PLAIN,
                rounds=rounds,
                seed=chosen.seed,
            )
    report("arrow_encode", measured, kept=not chosen.smoke)


if __name__ == "__main__":
    main()
