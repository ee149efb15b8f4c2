"""Flips bits of a stored log; a test does it for every bit of a record, a soak run at random."""

from __future__ import annotations

import random
import shutil
from bisect import bisect_right
from collections import Counter
from enum import Enum
from pathlib import Path

from orbitmq.errors import StoreDamagedError
from orbitmq.record.decode import decode_record
from orbitmq.store.config import FlushMode
from orbitmq.store.files.file_names import file_name
from orbitmq.store.files.record_checks import UNCHECKED_FIELDS, UNCHECKED_WHEN_REBUILT
from orbitmq.store.message_store import MessageStore
from tests.crash.scenario import Ledger, append_some, small_config

# Names and sizes of the fixed fields of a record with IPv4 hosts, in their order.
_FIELDS = (
    ("record bytes", 4),
    ("magic", 4),
    ("body CRC", 4),
    ("queue id", 4),
    ("user flag", 4),
    ("queue offset", 8),
    ("physical offset", 8),
    ("system flag", 4),
    ("born time", 8),
    ("born host", 8),
    ("store time", 8),
    ("store host", 8),
    ("reconsume times", 4),
    ("prepared transaction offset", 8),
    ("body bytes", 4),
)


class Prepared(Enum):
    """How a store was left before its log is damaged."""

    KILLED = "killed"
    CLEAN = "stopped cleanly"
    QUEUES_LOST = "stopped cleanly, queues lost"

    def apply(self, root: Path) -> None:
        """Leave a store that was stopped cleanly in this way."""
        if self is Prepared.KILLED:
            (root / "abort").write_bytes(b"1")
        elif self is Prepared.QUEUES_LOST:
            shutil.rmtree(root / "consumequeue")


def field_names(record: bytes) -> list[str]:
    """Name the field of each byte of a record."""
    names = [name for name, size in _FIELDS for _ in range(size)]
    message = decode_record(record)
    names += ["body"] * len(message.stored_body) + ["topic length"]
    names += ["topic"] * len(message.topic.encode()) + ["properties length"] * 2
    names += ["properties"] * len(message.properties_bytes)
    assert len(names) == len(record)
    return names


def served(root: Path) -> list[bytes] | None:
    """What a consumer gets of all topics and queues; None if damage is reported."""
    records: list[bytes] = []
    try:
        with MessageStore(small_config(root)) as store:
            for queue in store.queues():
                offset = queue.start
                while offset < queue.end:
                    found = store.read(queue.topic, queue.queue_id, offset)
                    records += found.records
                    offset = found.next_offset
            by_place = [store.message_at(decode_record(r).physical_offset) for r in records]
    except StoreDamagedError:
        return None
    assert all(by_place), "found by queue and not by place"
    return records


def run_flips(folder: Path, seed: int, mode: FlushMode, *, rounds: int) -> Counter[str]:
    """Flip one bit of a log, open the store and read it all, again and again; counts what happened.

    Every record served is what was stored, or differs in that bit of a field that is listed.
    """
    rng = random.Random(f"{seed} {mode} flips")
    root, copy = folder / "store", folder / "copy"
    with MessageStore(small_config(root, mode)) as store:
        append_some(store, Ledger(), rng, rng.randrange(20, 80))
        log_end = int(store.log_end)
    stored = served(root)
    assert stored
    by_place = {int(decode_record(record).physical_offset): record for record in stored}
    outcomes: Counter[str] = Counter()
    for _ in range(rounds):
        shutil.copytree(root, copy)
        place, bit = rng.randrange(log_end), rng.randrange(8)
        prepared = rng.choice(list(Prepared))
        prepared.apply(copy)
        outcomes[_flip_one(copy, place, bit, by_place, prepared)] += 1
        shutil.rmtree(copy)
    return outcomes


def _flip_one(
    root: Path, place: int, bit: int, by_place: dict[int, bytes], prepared: Prepared
) -> str:
    """Flip a bit and read everything; returns the outcome."""
    what = f"bit {bit} of byte {place}, {prepared.value}"
    _flip(root, place, bit)
    starts = sorted(by_place)
    start = starts[bisect_right(starts, place) - 1]
    stored = by_place[start]
    at = place - start
    got = served(root)
    if got is None:
        return "reported"
    expected = Counter(by_place.values())
    if at >= len(stored):
        assert Counter(got) == expected, f"{what}: it lies between records"
        return "between records, without effect"
    field = field_names(stored)[at]
    flipped = stored[:at] + bytes([stored[at] ^ 1 << bit]) + stored[at + 1 :]
    changed = Counter(got) - expected
    unchecked = UNCHECKED_WHEN_REBUILT if prepared is Prepared.QUEUES_LOST else UNCHECKED_FIELDS
    assert field in unchecked, f"{what}: in {field}, not noticed"
    if changed:
        assert changed == Counter([flipped]), f"{what}: in {field}, others are changed too"
        return "served, in a field nothing else can verify"
    # Rebuilt queues trust a record that claims to be half a transaction.
    assert prepared is Prepared.QUEUES_LOST, f"{what}: in {field}, a message is hidden"
    assert expected - Counter(got) == Counter([stored]), f"{what}: in {field}, others are hidden"
    return "hidden, in a field nothing else can verify"


def _flip(root: Path, place: int, bit: int) -> None:
    file_bytes = small_config(root).log_file_bytes
    path = root / "commitlog" / file_name(place // file_bytes * file_bytes)
    content = bytearray(path.read_bytes())
    content[place % file_bytes] ^= 1 << bit
    path.write_bytes(content)
