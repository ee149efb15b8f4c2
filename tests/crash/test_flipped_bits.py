"""Single bits flipped in the log: bodies never go out wrong; what is not noticed is listed."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from orbitmq.record.decode import decode_record
from orbitmq.store.config import FlushMode
from orbitmq.store.files.record_checks import UNCHECKED_FIELDS, UNCHECKED_WHEN_REBUILT
from orbitmq.store.log.draft import Draft
from orbitmq.store.message_store import MessageStore
from tests.crash.flipping import Prepared, field_names, run_flips, served
from tests.crash.scenario import small_config

LOG = "commitlog/00000000000000000000"


pytestmark = pytest.mark.usefixtures("no_real_syncs")


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    root = tmp_path / "stopped"
    with MessageStore(small_config(root)) as store:
        for number in range(3):
            store.put(
                Draft(
                    topic="flips",
                    body=f"body {number}".encode(),
                    properties=f"KEYS\x01k{number}\x02".encode(),
                    born_ms=1,
                )
            )
    return root


def _unnoticed_fields(
    root: Path, copy: Path, bits: list[int], *, prepared: Prepared, number: int = 1
) -> set[str]:
    """Flip bits of a record, one at a time; returns the fields in which it was not noticed."""
    log = (root / LOG).read_bytes()
    with MessageStore(small_config(root)) as store:
        records = store.read("flips", 0, 0).records
    names = field_names(records[number])
    start = sum(map(len, records[:number]))
    unnoticed: set[str] = set()
    for bit in bits:
        flipped = bytearray(log)
        flipped[start + bit // 8] ^= 1 << bit % 8
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(root, copy)
        (copy / LOG).write_bytes(flipped)
        prepared.apply(copy)
        got = served(copy)
        if got is None:
            continue
        bodies = {decode_record(record).stored_body for record in got}
        assert bodies <= {b"body 0", b"body 1", b"body 2"}, f"bit {bit} of {names[bit // 8]}"
        if prepared is not Prepared.QUEUES_LOST:
            # Rebuilt queues trust a record that claims to be half a transaction.
            assert len(got) == 3, f"bit {bit} of {names[bit // 8]}: a message is hidden"
        if set(records) <= set(got):
            pytest.fail(f"bit {bit} changed nothing")
        unnoticed.add(names[bit // 8])
    return unnoticed


def _all_bits(root: Path) -> list[int]:
    with MessageStore(small_config(root)) as store:
        return list(range(len(store.read("flips", 0, 0).records[1]) * 8))


def test_a_flipped_bit_is_noticed_or_its_field_is_listed(stopped: Path, tmp_path: Path) -> None:
    bits = _all_bits(stopped)

    unnoticed = _unnoticed_fields(stopped, tmp_path / "copy", bits, prepared=Prepared.KILLED)

    assert unnoticed == set(UNCHECKED_FIELDS)


def test_a_flipped_bit_is_noticed_after_a_clean_stop_when_it_is_read(
    stopped: Path, tmp_path: Path
) -> None:
    rng = random.Random(5)
    bits = rng.sample(_all_bits(stopped), 250)

    unnoticed = _unnoticed_fields(stopped, tmp_path / "copy", bits, prepared=Prepared.CLEAN)

    assert unnoticed <= set(UNCHECKED_FIELDS)


def test_queues_rebuilt_from_a_damaged_log_trust_more_of_it(stopped: Path, tmp_path: Path) -> None:
    bits = _all_bits(stopped)[96:512] + _all_bits(stopped)[-300:]

    unnoticed = _unnoticed_fields(stopped, tmp_path / "copy", bits, prepared=Prepared.QUEUES_LOST)

    assert unnoticed - set(UNCHECKED_FIELDS) <= set(UNCHECKED_WHEN_REBUILT)


@pytest.mark.parametrize("prepared", [Prepared.KILLED, Prepared.CLEAN])
def test_a_flipped_bit_in_the_newest_record_does_not_move_it_to_another_queue(
    stopped: Path, tmp_path: Path, prepared: Prepared
) -> None:
    with MessageStore(small_config(stopped)) as store:
        names = field_names(store.read("flips", 0, 2).records[0])
    bits = [bit for bit in range(len(names) * 8) if names[bit // 8] in {"queue id", "topic"}]

    unnoticed = _unnoticed_fields(stopped, tmp_path / "copy", bits, prepared=prepared, number=2)

    assert unnoticed == set()


@pytest.mark.parametrize("mode", list(FlushMode))
def test_flipped_bits_anywhere_in_a_log_of_many_files_change_no_body(
    tmp_path: Path, mode: FlushMode
) -> None:
    outcomes = run_flips(tmp_path, seed=3, mode=mode, rounds=40)

    assert outcomes["reported"] > 0
