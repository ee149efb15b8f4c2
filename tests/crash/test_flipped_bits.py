"""Single bits flipped in the log: bodies never go out wrong; what is not noticed is listed."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from orbitmq.errors import StoreDamagedError
from orbitmq.record.decode import decode_record
from orbitmq.store.draft import Draft
from orbitmq.store.message_store import MessageStore
from orbitmq.store.record_checks import UNCHECKED_FIELDS, UNCHECKED_WHEN_REBUILT
from tests.crash.scenario import small_config

LOG = "commitlog/00000000000000000000"
# Names and sizes of the fixed fields of a record with IPv4 hosts, in their order.
FIELDS = (
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


@pytest.fixture(autouse=True)
def _no_real_syncs() -> Iterator[None]:
    with mock.patch("os.fdatasync"), mock.patch("os.fsync"):
        yield


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


def _field_names(record: bytes) -> list[str]:
    """Name the field of each byte of a record."""
    names = [name for name, size in FIELDS for _ in range(size)]
    message = decode_record(record)
    names += ["body"] * len(message.stored_body) + ["topic length"]
    names += ["topic"] * len(message.topic.encode()) + ["properties length"] * 2
    names += ["properties"] * len(message.properties_bytes)
    assert len(names) == len(record)
    return names


def _served(root: Path) -> list[bytes] | None:
    """What a consumer gets of all topics and queues; None when damage is reported."""
    try:
        with MessageStore(small_config(root)) as store:
            records: list[bytes] = []
            for queue in store.queues():
                offset = queue.start
                while offset < queue.end:
                    found = store.read(queue.topic, queue.queue_id, offset)
                    records += found.records
                    offset = found.next_offset
                    by_place = [store.message_at(decode_record(r).physical_offset) for r in records]
                    assert all(by_place), "found by queue and not by place"
            return records
    except StoreDamagedError:
        return None


def _unnoticed_fields(root: Path, copy: Path, bits: list[int], *, prepare: str) -> set[str]:
    log = (root / LOG).read_bytes()
    with MessageStore(small_config(root)) as store:
        first, middle, last = store.read("flips", 0, 0).records
    names = _field_names(middle)
    unnoticed: set[str] = set()
    for bit in bits:
        flipped = bytearray(log)
        flipped[len(first) + bit // 8] ^= 1 << bit % 8
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(root, copy)
        (copy / LOG).write_bytes(flipped)
        if prepare == "killed":
            (copy / "abort").write_bytes(b"1")
        elif prepare == "queues lost":
            shutil.rmtree(copy / "consumequeue")
        served = _served(copy)
        if served is None:
            continue
        bodies = {decode_record(record).stored_body for record in served}
        assert bodies <= {b"body 0", b"body 1", b"body 2"}, f"bit {bit} of {names[bit // 8]}"
        if prepare != "queues lost":
            # Queues that are built again believe a record which says it is half a transaction.
            assert len(served) == 3, f"bit {bit} of {names[bit // 8]}: a message is hidden"
        if first in served and middle in served and last in served:
            pytest.fail(f"bit {bit} changed nothing")
        unnoticed.add(names[bit // 8])
    return unnoticed


def _all_bits(root: Path) -> list[int]:
    with MessageStore(small_config(root)) as store:
        return list(range(len(store.read("flips", 0, 0).records[1]) * 8))


def test_a_flipped_bit_is_noticed_or_its_field_is_listed(stopped: Path, tmp_path: Path) -> None:
    bits = _all_bits(stopped)

    unnoticed = _unnoticed_fields(stopped, tmp_path / "copy", bits, prepare="killed")

    assert unnoticed == set(UNCHECKED_FIELDS)


def test_a_flipped_bit_is_noticed_after_a_clean_stop_when_it_is_read(
    stopped: Path, tmp_path: Path
) -> None:
    rng = random.Random(5)
    bits = rng.sample(_all_bits(stopped), 250)

    unnoticed = _unnoticed_fields(stopped, tmp_path / "copy", bits, prepare="clean")

    assert unnoticed <= set(UNCHECKED_FIELDS)


def test_queues_built_again_from_a_damaged_log_believe_more_of_it(
    stopped: Path, tmp_path: Path
) -> None:
    bits = _all_bits(stopped)[96:512] + _all_bits(stopped)[-300:]

    unnoticed = _unnoticed_fields(stopped, tmp_path / "copy", bits, prepare="queues lost")

    assert unnoticed - set(UNCHECKED_FIELDS) <= set(UNCHECKED_WHEN_REBUILT)
