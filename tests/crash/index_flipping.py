"""Flips bits of the key index: `python -m tests.crash.index_flipping FOLDER SECONDS [SEED]`.

Each round copies a store that was stopped or killed, flips one bit of a header field, a slot or a
field of an entry, opens it, appends messages and looks up every key, with and without a range of
times. New keys are always found, and never a message without the key. If an old one is missed,
`verify` says so, and a rebuild brings it back.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from pathlib import Path

from orbitmq.store.index.key_index import KeyIndex
from orbitmq.store.index.key_table import ENTRY_BYTES, HEADER_BYTES, SLOT_BYTES
from orbitmq.store.message_store import MessageStore
from orbitmq.store.readonly.index_files import ReadOnlyIndexFile
from orbitmq.store.readonly.readonly_store import ReadOnlyStore
from orbitmq.store.tools.rebuilding import RebuildOptions, rebuild
from orbitmq.store.tools.verification import verify
from tests.crash.entry_flipping import Base, config, make_bases
from tests.crash.flip_campaign import Outcomes, run_campaign
from tests.crash.scenario import TOPIC, draft, number_of

_QUEUES = 3
# Name, first byte and size of what has a fixed place.
_HEADER = (
    ("header: begin time", 0, 8),
    ("header: end time", 8, 8),
    ("header: begin offset", 16, 8),
    ("header: end offset", 24, 8),
    ("header: slots used", 32, 4),
    ("header: next entry", 36, 4),
)
_ENTRY = (
    ("entry: key hash", 0, 4),
    ("entry: physical offset", 4, 8),
    ("entry: seconds", 12, 4),
    ("entry: previous entry", 16, 4),
)


def run_index_flips(folder: Path, seed: int, rounds: int) -> Outcomes:
    """Flip one bit at a time; counts where, and what became of it."""
    rng = random.Random(f"{seed} index")
    bases = make_bases(folder, rng)
    outcomes: Outcomes = Counter()
    for number in range(rounds):
        base, copy = rng.choice(bases), folder / "copy"
        shutil.copytree(base.root, copy)
        field, where = _flip_somewhere(copy, rng)
        try:
            outcome = _outcome(copy, base)
        except AssertionError as error:
            error.add_note(f"seed {seed} round {number}: {field}, {where}, store {base.how}")
            raise
        outcomes[field, outcome] += 1
        shutil.rmtree(copy)
    return outcomes


def _flip_somewhere(root: Path, rng: random.Random) -> tuple[str, str]:
    """Flip a bit of the newest file or of any; returns the field, and where it is."""
    paths = sorted((root / "index").iterdir())
    path = rng.choice((paths[-1], rng.choice(paths)))
    slots = config(root).index_slots
    entries = ReadOnlyIndexFile.open(path).next_number
    kind = rng.randrange(len(_HEADER) + 1 + len(_ENTRY))
    if kind < len(_HEADER):
        field, first, size = _HEADER[kind]
    elif kind == len(_HEADER):
        field, first, size = "slot", HEADER_BYTES, slots * SLOT_BYTES
    else:
        field, at, size = _ENTRY[kind - len(_HEADER) - 1]
        number = rng.choice((1, entries - 1, rng.randrange(1, max(2, entries))))
        first = HEADER_BYTES + slots * SLOT_BYTES + number * ENTRY_BYTES + at
    byte, bit = first + rng.randrange(size), rng.randrange(8)
    content = bytearray(path.read_bytes())
    assert len(content) == KeyIndex.file_bytes(slots, config(root).index_entries)
    content[byte] ^= 1 << bit
    path.write_bytes(content)
    return field, f"{path.name} of {len(paths)} files, byte {byte}, bit {bit}"


def _outcome(root: Path, base: Base) -> str:
    added = [(number, queue_id) for queue_id, number in base.ends.items() if queue_id < _QUEUES]
    old = [
        (number, queue_id)
        for queue_id in range(_QUEUES)
        for number in range(base.starts[queue_id], base.ends[queue_id])
    ]
    with MessageStore(config(root)) as store:
        for number, queue_id in added:
            store.put(draft(number, queue_id=queue_id))
        assert not _missed(store, added), "a new key is not found"
        missed = _missed(store, old)
    if not missed:
        return "all found"
    with ReadOnlyStore(root) as stopped:
        found = verify(stopped, index_slots=config(root).index_slots)
    assert not found.is_fine, f"nobody says that {missed[:3]} are not found"
    rebuild(root, RebuildOptions(index_slots=config(root).index_slots))
    with MessageStore(config(root)) as store:
        assert not _missed(store, [*old, *added]), "a rebuild does not bring a key back"
    return "reported by verify"


def _missed(store: MessageStore, messages: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Look messages up by their unique id; returns those that are not found."""
    missed: list[tuple[int, int]] = []
    for number, queue_id in messages:
        time_ms = store.store_ms_of(TOPIC, queue_id, number)
        assert time_ms is not None
        for begin_ms, end_ms in ((0, 2**62), (time_ms, time_ms)):
            found = store.find(
                TOPIC, f"u{number}-{queue_id}", begin_ms=begin_ms, end_ms=end_ms, count_max=2
            )
            places = [(number_of(message), message.queue_id) for message in found]
            assert places in ([(number, queue_id)], []), f"found {places} by a key of {number}"
            if not places and (number, queue_id) not in missed:
                missed.append((number, queue_id))
    return missed


if __name__ == "__main__":
    run_campaign(
        program="tests.crash.index_flipping",
        title="Flipped bits in the key index",
        told="""Each flip hits a copy of a store that was stopped, or killed. It is opened, messages are appended, \
and every key is looked up. New keys were always found, and never a message without the key. Where \
an old key was missed, `orbitmq store verify` reported it, and `orbitmq store rebuild` brought it \
back.""",
        flip=run_index_flips,
    )
