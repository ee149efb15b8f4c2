"""What does reading one queue out of many cost, against reading as many bytes of the log's file?

    python -m benchmarks.store_read [--rounds N] [--smoke]

Messages of all queues lie in turn in the log, so the records of one queue are far apart. A slice
reads whole queues from their start, 32 messages at a time, as a consumer that catches up does.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Final

from benchmarks.filling import TOPIC, config_of, fill
from benchmarks.rounds import Form, Measured, measure, options, report
from orbitmq.record.decode import decode_record
from orbitmq.store.message_store import MessageStore

QUEUES: Final = (1, 64, 1000)
RECORDS: Final = 200_000
SLICE_RECORDS: Final = 20_000
COUNT_MAX: Final = 32
READING: Final = "reading the file once"


def read_forms(store: MessageStore, queues: int, log: Path, slice_records: int) -> dict[str, Form]:
    """Each form reads as many records."""
    size = int(store.log_end) // sum(int(queue.end) for queue in store.queues())
    descriptor = os.open(log, os.O_RDONLY)
    places: list[tuple[int, int]] = []
    for queue_id in range(queues):
        offset, end = 0, store.end_of(TOPIC, queue_id)
        while offset < end and len(places) < slice_records:
            found = store.read(TOPIC, queue_id, offset, COUNT_MAX)
            places += [(decode_record(r).physical_offset, len(r)) for r in found.records]
            offset = found.next_offset
    piece = bytearray(1024 * 1024)

    def read_file() -> int:
        for at in range(0, slice_records * size, len(piece)):
            os.preadv(descriptor, [piece], at)
        return slice_records

    def read_records() -> int:
        for physical_offset, record_bytes in places:
            os.pread(descriptor, record_bytes, physical_offset)
        return len(places)

    def read_queues() -> int:
        records = 0
        for queue_id in range(queues):
            offset, end = 0, store.end_of(TOPIC, queue_id)
            while offset < end and records < slice_records:
                found = store.read(TOPIC, queue_id, offset, COUNT_MAX)
                records += len(found.records)
                offset = found.next_offset
        return records

    return {
        READING: read_file,
        "one pread a record": read_records,
        f"store.read of {COUNT_MAX}": read_queues,
    }


def main() -> None:
    """Measure, print the table and keep the results."""
    chosen = options("Compare reading a queue with reading the file.", rounds=15)
    share = 50 if chosen.smoke else 1
    measured: list[Measured] = []
    for queues in QUEUES[:2] if chosen.smoke else QUEUES:
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            with MessageStore(config_of(root)) as store:
                fill(store, RECORDS // share, queues=queues)
                measured += measure(
                    f"one queue of {queues}",
                    read_forms(
                        store, queues, root / "commitlog" / f"{0:020}", SLICE_RECORDS // share
                    ),
                    baseline=READING,
                    rounds=1 if chosen.smoke else chosen.rounds,
                    seed=chosen.seed,
                )
    report("store_read", measured, kept=not chosen.smoke)


if __name__ == "__main__":
    main()
