"""Damaged files: what can be rebuilt is, and everything else is named."""

from __future__ import annotations

import logging
import os
import random
import shutil
from pathlib import Path

import pytest

from orbitmq.errors import StoreDamagedError, StoreFormatError
from orbitmq.store.config import FlushMode
from orbitmq.store.message_store import MessageStore
from orbitmq.store.readonly.readonly_store import ReadOnlyStore
from orbitmq.store.retention import RetentionConfig
from orbitmq.store.tools.findings import FindingKind
from orbitmq.store.tools.verification import Verification, verify
from tests.crash.agreement import check_agreement
from tests.crash.damaging import Damage, DamagedStores
from tests.crash.scenario import copy_as_killed, draft, number_of, small_config

FIRST_LOG = f"commitlog/{0:020d}"


pytestmark = pytest.mark.usefixtures("no_real_syncs")


def _write(root: Path, *, killed: Path | None = None) -> None:
    with MessageStore(small_config(root)) as store:
        for number in range(200):
            store.put(draft(number, queue_id=number % 2, body_bytes=1000))
        if killed is not None:
            store._upkeep.round()
            copy_as_killed(store, root, killed)


def _numbers(root: Path) -> list[int]:
    with MessageStore(small_config(root)) as store:
        queues = check_agreement(store, small_config(root))
    return sorted(number_of(m) for messages in queues.values() for m in messages)


def _verified(root: Path) -> Verification:
    with ReadOnlyStore(root) as store:
        return verify(store, index_slots=small_config(root).index_slots)


@pytest.mark.parametrize("seed", range(2))
def test_a_damaged_file_is_rebuilt_or_named(tmp_path: Path, seed: int) -> None:
    stores = DamagedStores(tmp_path, seed, FlushMode.SYNC)
    cases = stores.cases()

    for damage in random.Random(seed).sample(cases, 10):
        stores.run(damage)

    assert len(cases) > 200


@pytest.mark.parametrize("stop", ["stopped", "killed"])
def test_a_removed_first_log_file_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, stop: str
) -> None:
    _write(tmp_path / "stopped", killed=tmp_path / "killed")
    root = tmp_path / stop
    (root / FIRST_LOG).unlink()

    found = _verified(root)
    with caplog.at_level(logging.ERROR):
        kept = _numbers(root)

    assert found.findings.counts == {FindingKind.MISSING_LOG_FILE: 1}
    assert f"{0:020d}" in found.findings.problems[0].file
    assert f"log files are missing first={0:020d} start=65536 saved_start=0" in caplog.text
    assert kept == list(range(kept[0], 200))


def test_log_files_that_retention_deleted_are_not_missed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root, killed = tmp_path / "stopped", tmp_path / "killed"
    retention = RetentionConfig(reserved_hours=0)
    with MessageStore(small_config(root), retention=retention) as store:
        for number in range(200):
            store.put(draft(number, body_bytes=1000))
        store._upkeep.round()
        assert store.delete_expired()
        copy_as_killed(store, root, killed)

    with caplog.at_level(logging.WARNING):
        for folder in (root, killed):
            assert _verified(folder).is_fine
            assert _numbers(folder)[-1] == 199

    assert "missing" not in caplog.text


@pytest.mark.parametrize("value", [b"\xff" * 4096, (2**62).to_bytes(8) * 2 + bytes(4080)])
@pytest.mark.parametrize("stop", ["stopped", "killed"])
def test_an_impossible_checkpoint_is_ignored_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, value: bytes, stop: str
) -> None:
    _write(tmp_path / "stopped", killed=tmp_path / "killed")
    (tmp_path / stop / "checkpoint").write_bytes(value)

    with caplog.at_level(logging.WARNING):
        assert _numbers(tmp_path / stop) == list(range(200))

    assert "checkpoint ignored" in caplog.text


@pytest.mark.parametrize("stop", ["stopped", "killed"])
def test_a_flipped_bit_of_the_checkpoint_is_flipped_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, stop: str
) -> None:
    _write(tmp_path / "stopped", killed=tmp_path / "killed")
    path = tmp_path / stop / "checkpoint"
    content = path.read_bytes()
    # Some seconds later: no time in the future, and yet after the newest message.
    later = int.from_bytes(content[:8]) ^ 0x2000
    path.write_bytes(later.to_bytes(8) + content[8:])

    found = _verified(tmp_path / stop)
    with caplog.at_level(logging.WARNING):
        assert _numbers(tmp_path / stop) == list(range(200))

    assert not found.findings.problems
    assert "checkpoint repaired" in caplog.text
    assert path.read_bytes() == content or stop == "killed"


def test_a_truncated_queue_file_and_a_wrong_option_are_told_apart(tmp_path: Path) -> None:
    _write(tmp_path / "store")
    shutil.copytree(tmp_path / "store", tmp_path / "copy")
    for path in (tmp_path / "store" / "consumequeue").rglob("0*"):
        if path.is_file():
            os.truncate(path, 400)

    with pytest.raises(StoreFormatError, match="mappedFileSizeConsumeQueue"):
        MessageStore(small_config(tmp_path / "copy", queue_file_bytes=400))
    assert _numbers(tmp_path / "store") == list(range(200))


@pytest.mark.parametrize("name", ["commitlog", "consumequeue", "index", "orbitmq"])
def test_a_file_in_the_place_of_a_folder_is_named(tmp_path: Path, name: str) -> None:
    _write(tmp_path)
    shutil.rmtree(tmp_path / name)
    (tmp_path / name).write_bytes(b"")

    with pytest.raises(StoreFormatError, match=f"{name} is not a folder"):
        MessageStore(small_config(tmp_path))


def test_a_shortened_last_log_file_is_named_by_the_start_and_by_verify(tmp_path: Path) -> None:
    _write(tmp_path)
    last = max((tmp_path / "commitlog").iterdir())
    os.truncate(last, 0)

    assert _verified(tmp_path).findings.counts == {FindingKind.MISSING_LOG_FILE: 1}
    with pytest.raises(StoreDamagedError, match=last.name):
        MessageStore(small_config(tmp_path))


def test_verify_advises_to_open_a_killed_store_and_not_to_rebuild_it(tmp_path: Path) -> None:
    _write(tmp_path / "stopped", killed=tmp_path / "killed")
    newest = max((tmp_path / "killed" / "index").iterdir())
    os.truncate(newest, 10)

    found = _verified(tmp_path / "killed")

    advice = " ".join(found.findings.advice("DIR", is_clean=found.is_clean))
    assert "starting its broker recovers it" in advice
    assert "rebuild" not in advice
    assert _numbers(tmp_path / "killed") == list(range(200))


@pytest.mark.parametrize("second", range(2))
def test_an_index_has_no_gap_after_a_kill_whose_progress_is_lost(
    tmp_path: Path, second: int
) -> None:
    stores = DamagedStores(tmp_path, 500_006 + second, FlushMode.ASYNC)

    for kind in ("zeroed", "garbage"):
        stores.run(Damage("killed", "orbitmq/marks", kind))
