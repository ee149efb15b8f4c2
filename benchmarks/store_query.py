"""What does finding a message by its key cost, against reading it at a known offset?

    python -m benchmarks.store_query [--rounds N] [--smoke]

The index holds two keys of every message, its unique id and its own key. Keys are asked for in
random order; the baseline reads the same messages by their physical offsets.
"""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import Final

from benchmarks.filling import TOPIC, config_of, fill
from benchmarks.messages import key_of
from benchmarks.rounds import Form, measure, options, report
from orbitmq.store.message_store import MessageStore

RECORDS: Final = 500_000
SLICE_QUERIES: Final = 5_000
QUEUES: Final = 16
READING: Final = "message_at, by physical offset"


def query_forms(store: MessageStore, records: int, queries: int) -> dict[str, Form]:
    """Each form gets as many messages."""
    numbers = random.Random(2).sample(range(records), queries)  # an order, no secret
    keys = [key_of(number) for number in numbers]
    unknown = [key_of(records + number) for number in numbers]
    offsets = [store.find(TOPIC, key)[0].physical_offset for key in keys]

    def read() -> int:
        return sum(store.message_at(offset) is not None for offset in offsets)

    def find() -> int:
        return sum(len(store.find(TOPIC, key)) for key in keys)

    def find_nothing() -> int:
        assert not any(store.find(TOPIC, key) for key in unknown)
        return len(unknown)

    return {READING: read, "find, one message has the key": find, "find, none has it": find_nothing}


def main() -> None:
    """Measure, print the table and keep the results."""
    chosen = options("Compare finding a message by key with reading it.", rounds=15)
    share = 50 if chosen.smoke else 1
    records = RECORDS // share
    with tempfile.TemporaryDirectory() as folder, MessageStore(config_of(Path(folder))) as store:
        fill(store, records, queues=QUEUES)
        measured = measure(
            f"{2 * records:,} keys",
            query_forms(store, records, SLICE_QUERIES // share),
            baseline=READING,
            rounds=1 if chosen.smoke else chosen.rounds,
            seed=chosen.seed,
        )
    report("store_query", measured, kept=not chosen.smoke)


if __name__ == "__main__":
    main()
