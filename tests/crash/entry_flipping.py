"""Flips bits of queues and key index: `python -m tests.crash.entry_flipping FOLDER SECONDS [SEED]`.

Each round copies a store that was stopped or killed, flips one bit of a queue entry, of the bytes
after the newest one, or of the key index, opens it, appends to each queue and reads everything.
Every message must be there, in order, or be named by an error; no number is used twice; a lookup
finds no message that does not have the key. A filter trusts tag hashes, so it must find every message
once the store was scrubbed.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

from orbitmq.errors import StoreDamagedError
from orbitmq.record.decode import decode_record
from orbitmq.record.scan import hash_tag
from orbitmq.store.config import StoreConfig
from orbitmq.store.message_store import MessageStore
from tests.crash.flip_campaign import Outcomes, run_campaign
from tests.crash.flipping import Prepared
from tests.crash.scenario import TOPIC, copy_as_killed, draft, number_of, small_config

_FIELDS = (("physical offset", 8), ("record bytes", 4), ("tag hash", 8))
_QUEUES = 3
# The queue whose records were all deleted.
_IDLE = 3


@dataclass(frozen=True, slots=True)
class Base:
    """A store to damage copies of, and what is in it."""

    root: Path
    # The numbers from the oldest message on, and the next one, by queue.
    starts: dict[int, int]
    ends: dict[int, int]
    how: str


def config(root: Path) -> StoreConfig:
    """Queues of one file and a half, so that their first and last files are damaged too."""
    return replace(small_config(root), log_file_bytes=16 * 1024, queue_file_bytes=100 * 20)


def make_bases(folder: Path, rng: random.Random) -> list[Base]:
    """Make a store that lost its oldest log file, as it was stopped, marked as killed, or killed."""
    stopped, killed = folder / "stopped", folder / "killed"
    with MessageStore(config(stopped)) as store:
        for number in range(30):
            store.put(draft(number, queue_id=_IDLE))
        for number in range(rng.randrange(100, 160)):
            for queue_id in range(_QUEUES):
                store.put(draft(number, queue_id=queue_id, body_bytes=rng.choice((40, 100, 300))))
        store.parts.progress_saver.save(lambda _: store.flushed)
        store.parts.log.delete_first()
        store.parts.queues.raise_starts(store.log_start)
        store.parts.progress_saver.save(lambda _: store.flushed)
        for queue_id in range(_QUEUES):
            store.put(draft(store.end_of(TOPIC, queue_id), queue_id=queue_id))
        store.parts.queues.write()
        starts = {n: int(store.start_of(TOPIC, n)) for n in range(_QUEUES + 1)}
        ends = {n: int(store.end_of(TOPIC, n)) for n in range(_QUEUES + 1)}
        copy_as_killed(store, stopped, killed)
    marked = folder / "marked"
    shutil.copytree(stopped, marked)
    Prepared.KILLED.apply(marked)
    return [
        Base(stopped, starts, ends, "stopped"),
        Base(marked, starts, ends, "killed when all was saved"),
        Base(killed, starts, ends, "killed"),
    ]


def run_entry_flips(folder: Path, seed: int, rounds: int) -> Outcomes:
    """Flip one bit at a time; counts where, and what became of it."""
    rng = random.Random(f"{seed} entries")
    bases = make_bases(folder, rng)
    outcomes: Outcomes = Counter()
    for number in range(rounds):
        base, copy = rng.choice(bases), folder / "copy"
        shutil.copytree(base.root, copy)
        where = _flip_somewhere(copy, base, rng)
        try:
            outcome = _outcome(copy, base)
        except AssertionError as error:
            error.add_note(f"seed {seed} round {number}: {where}, store {base.how}")
            raise
        outcomes[where.partition(" of ")[0], outcome] += 1
        shutil.rmtree(copy)
    return outcomes


def _flip_somewhere(root: Path, base: Base, rng: random.Random) -> str:
    """Flip a bit; returns which."""
    if rng.random() < 0.2:
        path = rng.choice(sorted((root / "index").iterdir()))
        at = rng.choice((rng.randrange(40), rng.randrange(path.stat().st_size)))
        where = f"key index of byte {at}"
    else:
        queue_id = rng.randrange(_QUEUES + 1)
        end = base.ends[queue_id]
        edge = rng.choice((base.starts[queue_id], end - 1, end, rng.randrange(end + 20)))
        number = min(max(0, edge + rng.randrange(-1, 2)), end + 20)
        field, start = rng.choice(((0, 0), (0, 0), (1, 8), (2, 12)))
        byte = number * 20 + start + rng.randrange(_FIELDS[field][1])
        path = root / f"consumequeue/{TOPIC}/{queue_id}/{byte // 2000 * 2000:020d}"
        if not path.exists():
            path = root / f"consumequeue/{TOPIC}/0/{2000:020d}"
            queue_id, number = 0, 100 + byte % 2000 // 20
        at = byte % 2000
        where = f"{_FIELDS[field][0]} of entry {number}, queue {queue_id}"
    bit = rng.randrange(8)
    content = bytearray(path.read_bytes())
    content[at] ^= 1 << bit
    path.write_bytes(content)
    return f"{where}, bit {bit}"


def _outcome(root: Path, base: Base) -> str:
    try:
        with MessageStore(config(root)) as store:
            for queue_id in range(_QUEUES):
                added = store.put(draft(base.ends[queue_id], queue_id=queue_id)).queue_offset
                assert added == base.ends[queue_id], f"queue {queue_id} continues at {added}"
            # The log does not tell where the idle queue ended: it may leave numbers out.
            added = store.put(draft(0, queue_id=_IDLE)).queue_offset
            assert added >= base.ends[_IDLE], f"the idle queue continues at {added}"
            assert store.read(TOPIC, _IDLE, added).records
            named = sum(_read_all(store, base, queue_id) for queue_id in range(_QUEUES))
            if not named:
                store.scrub.check_all()
                for queue_id in range(_QUEUES):
                    _check_tags(store, base, queue_id)
            for number in (0, 60, 90):
                for found in store.find(TOPIC, f"k{number}"):
                    assert number_of(found) == number, "found by a key that it does not have"
    except StoreDamagedError:
        return "reported at opening"
    return "named by an error" if named else "all read"


def _read_all(store: MessageStore, base: Base, queue_id: int) -> int:
    """Read a queue, in bulk and otherwise; returns how many messages only an error names."""
    named = 0
    offset, expected = base.starts[queue_id], base.starts[queue_id]
    while offset <= base.ends[queue_id]:
        try:
            read = (
                store.read(TOPIC, queue_id, offset, 32)
                if expected % 2
                else store.read_bulk(TOPIC, queue_id, offset, 100, 100_000)
            )
        except StoreDamagedError as error:
            assert f" {offset} of topic {TOPIC!r} queue {queue_id}" in str(error), error  # noqa: PT017
            named, offset, expected = named + 1, offset + 1, expected + 1
            continue
        for record in read.records:
            message = decode_record(record)
            place = message.queue_id, message.queue_offset, number_of(message)
            assert place == (queue_id, expected, expected), f"{place} instead of {expected}"
            expected += 1
        assert read.next_offset == expected, f"skipped from {expected} to {read.next_offset}"
        offset = read.next_offset
    return named


def _check_tags(store: MessageStore, base: Base, queue_id: int) -> None:
    """Read a queue with a filter that all of its messages pass."""
    wanted = hash_tag(b"t")
    offset, count = base.starts[queue_id], 0
    while offset <= base.ends[queue_id]:
        read = store.read(TOPIC, queue_id, offset, 32, tag_filter=lambda found: found == wanted)
        count, offset = count + len(read.records), read.next_offset
    missed = base.ends[queue_id] + 1 - base.starts[queue_id] - count
    assert not missed, f"a filter misses {missed} messages of queue {queue_id}"


if __name__ == "__main__":
    run_campaign(
        program="tests.crash.entry_flipping",
        title="Flipped bits in queues and key index",
        told="""Each flip hits a copy of a store that was stopped, or killed. It is opened, each queue gets another \
message, and everything is read. No message was skipped, no number used twice, no wrong message \
returned; and after scrubbing a filter by tags missed none.""",
        flip=run_entry_flips,
    )
