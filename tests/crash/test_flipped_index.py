"""Single bits flipped in the key index: new keys are found, and missed ones are reported."""

from __future__ import annotations

import shutil
from pathlib import Path
from unittest import mock

import pytest

from orbitmq.store.index.key_table import HEADER
from orbitmq.store.message_store import MessageStore
from tests.crash.flipping import Prepared
from tests.crash.index_flipping import run_index_flips
from tests.crash.scenario import TOPIC, draft, small_config

pytestmark = pytest.mark.usefixtures("no_real_syncs")


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with two index files."""
    root = tmp_path_factory.mktemp("stopped")
    config = small_config(root)
    with mock.patch("os.fdatasync"), mock.patch("os.fsync"), MessageStore(config) as store:
        store.put_batch([draft(number) for number in range(50)])
    assert len(list((root / "index").iterdir())) == 2
    return root


@pytest.mark.parametrize("prepared", [Prepared.KILLED, Prepared.CLEAN])
@pytest.mark.parametrize("change", [1 << 40, 1, -1])
@pytest.mark.parametrize("field", ["begin time", "end time", "begin offset", "end offset"])
@pytest.mark.parametrize("file", [0, 1])
def test_a_changed_header_hides_no_key(
    stopped: Path, tmp_path: Path, prepared: Prepared, file: int, field: str, change: int
) -> None:
    root = tmp_path / "store"
    shutil.copytree(stopped, root)
    prepared.apply(root)
    path = sorted((root / "index").iterdir())[file]
    content = bytearray(path.read_bytes())
    header = list(HEADER.unpack_from(content))
    header[["begin time", "end time", "begin offset", "end offset"].index(field)] += change
    HEADER.pack_into(content, 0, *header)
    path.write_bytes(content)

    with MessageStore(small_config(root)) as store:
        store.put(draft(50))
        for number in range(51):
            time_ms = store.store_ms_of(TOPIC, 0, number)
            assert time_ms is not None
            found = store.find(TOPIC, f"u{number}-0", begin_ms=time_ms, end_ms=time_ms)
            assert [message.queue_offset for message in found] == [number]


def test_bits_flipped_anywhere_in_the_index_hide_no_new_key_and_no_old_one_unnoticed(
    tmp_path: Path,
) -> None:
    outcomes = run_index_flips(tmp_path, seed=7, rounds=15)

    assert outcomes.total() == 15
