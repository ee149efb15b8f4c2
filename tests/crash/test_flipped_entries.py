"""Single bits flipped in queue entries: nothing is skipped, and no number is used twice."""

from __future__ import annotations

import shutil
from pathlib import Path
from unittest import mock

import pytest

from orbitmq.errors import StoreDamagedError
from orbitmq.record.decode import decode_record
from orbitmq.store.config import StoreConfig
from orbitmq.store.message_store import MessageStore
from tests.crash.entry_flipping import run_entry_flips
from tests.crash.flipping import Prepared
from tests.crash.scenario import draft, number_of, small_config

COUNT = 200


pytestmark = pytest.mark.usefixtures("no_real_syncs")


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose oldest log file was deleted, and all records of queue 1 with it."""
    root = tmp_path_factory.mktemp("stopped")
    with mock.patch("os.fdatasync"), mock.patch("os.fsync"), MessageStore(_config(root)) as store:
        store.put_batch([draft(number, queue_id=1) for number in range(30)])
        for number in range(COUNT):
            store.put(draft(number))
        _delete_log_files(store, 1)
        assert 0 < store.start_of("numbers", 0) < 150
        assert store.start_of("numbers", 1) == store.end_of("numbers", 1) == 30
    return root


def _config(root: Path) -> StoreConfig:
    config = small_config(root)
    return type(config)(
        root=root,
        log_file_bytes=16 * 1024,
        queue_file_bytes=300 * 20,
        index_slots=64,
        index_entries=100,
        queue_flush_interval_ms=60_000,
    )


def _delete_log_files(store: MessageStore, count: int) -> None:
    store.parts.progress_saver.save(lambda _: store.flushed)
    for _ in range(count):
        store.parts.log.delete_first()
    store.parts.queues.raise_starts(store.log_start)


def _flip(root: Path, queue_id: int, bit: int) -> None:
    path = root / f"consumequeue/numbers/{queue_id}/00000000000000000000"
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 0x80 >> bit % 8
    path.write_bytes(content)


@pytest.mark.parametrize("prepared", [Prepared.KILLED, Prepared.CLEAN])
@pytest.mark.parametrize("bit", [0, 17, 40, 50, 64, 70, 90])
@pytest.mark.parametrize("entry", ["oldest", "next", "100", "150", "newest"])
def test_a_flipped_bit_hides_no_message_and_uses_no_number_twice(
    stopped: Path, tmp_path: Path, entry: str, bit: int, prepared: Prepared
) -> None:
    root = tmp_path / "store"
    shutil.copytree(stopped, root)
    with MessageStore(_config(root)) as store:
        start = store.start_of("numbers", 0)
    number = {"oldest": start, "next": start + 1, "newest": COUNT - 1}.get(entry) or int(entry)
    prepared.apply(root)
    _flip(root, 0, number * 160 + bit)

    with MessageStore(_config(root)) as store:
        added = store.put(draft(COUNT))
        found = _read_all(store, start)

    assert added.queue_offset == COUNT
    assert found == list(range(start, COUNT + 1))


@pytest.mark.parametrize("bit", [0, 17, 40, 50, 64, 70, 90])
def test_a_queue_without_records_keeps_its_end_though_its_newest_entry_is_damaged(
    stopped: Path, tmp_path: Path, bit: int
) -> None:
    root = tmp_path / "store"
    shutil.copytree(stopped, root)
    _flip(root, 1, 29 * 160 + bit)

    with MessageStore(_config(root)) as store:
        assert store.end_of("numbers", 1) == 30
    with MessageStore(_config(root)) as store:
        added = store.put(draft(30, queue_id=1))

    assert added.queue_offset == 30


def test_sound_queues_are_not_rebuilt(
    stopped: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for prepared in (Prepared.KILLED, Prepared.CLEAN):
        root = tmp_path / prepared.name
        shutil.copytree(stopped, root)
        prepared.apply(root)
        for number in range(COUNT, COUNT + 3):
            with MessageStore(_config(root)) as store:
                assert store.put(draft(number)).queue_offset == number
                if number == COUNT + 1:
                    _delete_log_files(store, 1)

    assert "rebuilding" not in caplog.text


def _read_all(store: MessageStore, start: int) -> list[int]:
    """The messages that a consumer gets, with those that an error names."""
    found: list[int] = []
    offset = start
    while offset < store.end_of("numbers", 0):
        try:
            read = store.read("numbers", 0, offset, 32)
        except StoreDamagedError as error:
            if f" {offset} of topic 'numbers' queue 0" not in str(error):
                raise
            found.append(offset)
            offset += 1
            continue
        found += [number_of(decode_record(record)) for record in read.records]
        assert read.next_offset > offset
        offset = read.next_offset
    return found


def test_bits_flipped_anywhere_in_queues_and_index_hide_nothing(tmp_path: Path) -> None:
    outcomes = run_entry_flips(tmp_path, seed=7, rounds=40)

    assert outcomes.total() == 40
