"""Appending with numbers that can be counted afterwards: shared by the crash tests."""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from orbitmq.record.decode import StoredMessage
from orbitmq.store.config import FlushMode, StoreConfig
from orbitmq.store.log.draft import Draft
from orbitmq.store.message_store import MessageStore
from tests.crash.agreement import check_agreement

TOPIC = "numbers"


def small_config(
    root: Path, flush_mode: FlushMode = FlushMode.SYNC, *, queue_file_bytes: int = 40 * 20
) -> StoreConfig:
    """Files so small that every test fills several of them."""
    return StoreConfig(
        root=root,
        log_file_bytes=64 * 1024,
        queue_file_bytes=queue_file_bytes,
        index_slots=64,
        index_entries=100,
        query_count_max=10_000,
        flush_mode=flush_mode,
        flush_interval_ms=5,
        flush_thorough_interval_ms=20,
        queue_flush_interval_ms=5,
        flush_timeout_ms=60_000,
    )


def draft(number: int, *, queue_id: int = 0, body_bytes: int = 100, extra_bytes: int = 0) -> Draft:
    """A message whose body says its number; properties may cross pages as well."""
    keys = f"UNIQ_KEY\x01u{number}-{queue_id}\x02KEYS\x01k{number} all\x02TAGS\x01t\x02"
    extra = f"extra\x01{'e' * extra_bytes}\x02" if extra_bytes else ""
    return Draft(
        topic=TOPIC,
        queue_id=queue_id,
        body=f"{number}|".encode().ljust(body_bytes, b"x"),
        properties=(keys + extra).encode(),
    )


def number_of(message: StoredMessage) -> int:
    """The number of a message."""
    return int(message.stored_body.partition(b"|")[0])


def copy_as_killed(store: MessageStore, root: Path, target: Path) -> None:
    """Copy what a killed process would leave; nobody appends meanwhile."""
    # A copy takes time, a kill does not: progress saved meanwhile could cover later bytes.
    store._upkeep.stop()
    shutil.copytree(root, target)


@dataclass
class Ledger:
    """What was tried and what was acknowledged, in the order of the log."""

    tried: list[int] = field(default_factory=list)
    acked: int = 0  # so many of them, from the first


def append_some(store: MessageStore, ledger: Ledger, rng: random.Random, count: int) -> None:
    """Append messages one by one and in batches, waiting for the disk now and then."""
    wait = store.put_batch, store.append_batch
    while count > 0:
        size = rng.choice((1, 1, 1, 1, rng.randrange(2, 6)))
        # Equal sizes line up again after a cut; large properties cross pages.
        body_bytes = rng.choice((100, 100, 100, rng.randrange(20, 5000)))
        first = ledger.tried[-1] + 1 if ledger.tried else 0
        extra_bytes = rng.choice((0, 0, 0, rng.randrange(1, 6000)))
        batch = [
            draft(first + i, queue_id=first % 3, body_bytes=body_bytes, extra_bytes=extra_bytes)
            for i in range(size)
        ]
        ledger.tried += range(first, first + size)
        choice = rng.random()
        wait[choice > 0.5](batch)
        if choice <= 0.5:
            ledger.acked = len(ledger.tried)
        count -= size


def check_after_crash(root: Path, ledger: Ledger, flush_mode: FlushMode) -> Ledger:
    """Recover, and compare what is left with what was tried; returns what is left."""
    config = small_config(root, flush_mode)
    with MessageStore(config) as store:
        queues = check_agreement(store, config)
    by_place = sorted((m for queue in queues.values() for m in queue), key=_place)
    numbers = [number_of(message) for message in by_place]
    assert numbers == ledger.tried[: len(numbers)], f"{numbers} is not how they were appended"
    if flush_mode is FlushMode.SYNC:
        assert len(numbers) >= ledger.acked, f"{ledger.acked - len(numbers)} acked are lost"
    return Ledger(numbers, min(ledger.acked, len(numbers)))


def _place(message: StoredMessage) -> int:
    return message.physical_offset
