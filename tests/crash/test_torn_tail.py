"""A log that ends in the middle of a record: cut above what was flushed, refused below."""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from orbitmq.errors import StoreDamagedError
from orbitmq.model.queues import PhysicalOffset
from orbitmq.store.log.draft import Receipt
from orbitmq.store.message_store import MessageStore
from orbitmq.store.opening.parts import OWN_FOLDER
from orbitmq.store.opening.progress import ProgressFile, SavedProgress
from tests.crash.agreement import check_agreement
from tests.crash.scenario import copy_as_killed, draft, number_of, small_config

LOG = "commitlog/00000000000000000000"


pytestmark = pytest.mark.usefixtures("no_real_syncs")


@dataclass
class Killed:
    """A store as a killed process leaves it."""

    root: Path
    receipts: list[Receipt]
    log: bytes

    def copy(self, target: Path, log: bytes, *, flushed: int) -> Path:
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(self.root, target)
        (target / LOG).write_bytes(log)
        progress_file = ProgressFile(target / OWN_FOLDER)
        flushed_at = PhysicalOffset(flushed)
        progress = replace(progress_file.saved, flushed=flushed_at)
        if progress.dispatched > flushed:
            # Queues and index were not on disk yet either.
            progress = SavedProgress(
                flushed=flushed_at,
                checkpoint_before=progress.checkpoint_before,
                checkpoint_after=progress.checkpoint_after,
            )
        progress_file.write(progress)
        progress_file.close()
        return target


@pytest.fixture
def killed(tmp_path: Path) -> Killed:
    root = tmp_path / "running"
    with MessageStore(small_config(root)) as store:
        receipts = [store.put(draft(number, queue_id=number % 2)) for number in range(8)]
        copy_as_killed(store, root, tmp_path / "killed")
    return Killed(tmp_path / "killed", receipts, (tmp_path / "killed" / LOG).read_bytes())


def _numbers(root: Path) -> list[int]:
    with MessageStore(small_config(root)) as store:
        queues = check_agreement(store, small_config(root))
    return sorted(number_of(m) for messages in queues.values() for m in messages)


def test_a_tear_at_any_byte_of_the_last_two_records_is_cut_off(
    killed: Killed, tmp_path: Path
) -> None:
    last, before = killed.receipts[-1], killed.receipts[-2]

    for torn_at in range(before.physical_offset, last.end + 1):
        torn = killed.log[:torn_at].ljust(len(killed.log), b"\0")
        root = killed.copy(tmp_path / "torn", torn, flushed=before.physical_offset)

        kept = sum(receipt.end <= torn_at for receipt in killed.receipts)
        assert _numbers(root) == list(range(kept)), f"torn at {torn_at}"


def test_garbage_after_a_tear_is_zeroed(killed: Killed, tmp_path: Path) -> None:
    rng = random.Random(3)
    last, before = killed.receipts[-1], killed.receipts[-2]

    # Topic and properties have no checksum, so garbage there goes unseen; a torn page has zeros.
    checked = [receipt.physical_offset + at for receipt in (before, last) for at in range(188)]
    for torn_at in rng.sample(checked, 40):
        garbage = rng.randbytes(rng.randrange(1, 500))
        torn = (killed.log[:torn_at] + garbage).ljust(len(killed.log), b"\0")
        root = killed.copy(tmp_path / "torn", torn, flushed=before.physical_offset)

        kept = sum(receipt.end <= torn_at for receipt in killed.receipts)
        assert _numbers(root) == list(range(kept))


@pytest.mark.parametrize("record", [0, 3, 7])
def test_damage_below_the_flushed_offset_is_refused_with_its_position(
    killed: Killed, tmp_path: Path, record: int
) -> None:
    receipt = killed.receipts[record]
    damaged = bytearray(killed.log)
    damaged[receipt.physical_offset + 100] ^= 1
    root = killed.copy(tmp_path / "torn", bytes(damaged), flushed=killed.receipts[-1].end)
    files = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}

    with pytest.raises(StoreDamagedError) as caught:
        MessageStore(small_config(root))

    assert LOG in str(caught.value)
    assert f"byte {receipt.physical_offset}" in str(caught.value)
    assert "'numbers'" in str(caught.value)
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == files


def test_a_missing_flushed_tail_is_refused(killed: Killed, tmp_path: Path) -> None:
    last = killed.receipts[-1]
    torn = killed.log[: last.physical_offset].ljust(len(killed.log), b"\0")
    root = killed.copy(tmp_path / "torn", torn, flushed=last.end)

    with pytest.raises(StoreDamagedError, match=f"offset {last.physical_offset}, topic unknown"):
        MessageStore(small_config(root))


def test_a_stale_record_does_not_come_back_when_sizes_line_up(
    killed: Killed, tmp_path: Path
) -> None:
    # Record 5 was torn, 6 and 7 made it to disk: equal sizes, so 8 replaces 5.
    torn_at = killed.receipts[5].physical_offset
    torn = bytearray(killed.log)
    torn[torn_at : killed.receipts[5].end] = bytes(killed.receipts[5].record_bytes)
    root = killed.copy(tmp_path / "torn", bytes(torn), flushed=torn_at)
    with MessageStore(small_config(root)) as store:
        store.put(draft(8))
        copy_as_killed(store, root, tmp_path / "killed again")

    assert _numbers(tmp_path / "killed again") == [0, 1, 2, 3, 4, 8]


def test_a_prepared_file_of_a_killed_process_is_deleted(
    tmp_path: Path,
) -> None:
    root, config = tmp_path / "running", small_config(tmp_path / "running")
    with MessageStore(config) as store:
        count = 0
        while store.log_end < config.log_file_bytes * 3 // 4:
            store.put(draft(count, body_bytes=1000))
            count += 1
        store.parts.log.prepare_next_file()
        copy_as_killed(store, root, tmp_path / "killed")
    assert len(list((tmp_path / "killed" / "commitlog").iterdir())) == 2

    assert _numbers(tmp_path / "killed") == list(range(count))
    assert len(list((tmp_path / "killed" / "commitlog").iterdir())) == 1


@pytest.mark.parametrize("size", [0, 4096])
def test_a_file_whose_creation_was_cut_short_is_recreated(tmp_path: Path, size: int) -> None:
    root = tmp_path / "running"
    config = small_config(root)
    with MessageStore(config) as store:
        store.put(draft(0))
        copy_as_killed(store, root, tmp_path / "killed")
    unfinished = tmp_path / "killed" / "commitlog" / f"{config.log_file_bytes:020d}"
    unfinished.write_bytes(bytes(size))

    with MessageStore(small_config(tmp_path / "killed")) as store:
        for number in range(1, 100):
            store.put(draft(number, body_bytes=1000))

        assert store.log_end > config.log_file_bytes
    assert _numbers(tmp_path / "killed") == list(range(100))
