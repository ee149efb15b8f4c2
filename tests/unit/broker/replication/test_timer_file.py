"""The progress of a master's timers in a file of its slave."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.broker.replication.timer_file import (
    FILE_NAME,
    MasterTimers,
    read_master_timers,
    write_master_timers,
)
from orbitmq.errors import ConfigFileError
from orbitmq.protocol.requests.metadata import TimerCheckpoint

TIMERS = MasterTimers(TimerCheckpoint(read_ms=5000, queue_offset=3, master_queue_offset=3), 700)


def test_the_progress_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert read_master_timers(tmp_path) is None

    write_master_timers(tmp_path / "orbitmq", TIMERS)

    assert read_master_timers(tmp_path / "orbitmq") == TIMERS


@pytest.mark.parametrize("damaged", [b"", b"xyz", b"x" * 68])
def test_a_damaged_file_counts_as_missing(tmp_path: Path, damaged: bytes) -> None:
    (tmp_path / FILE_NAME).write_bytes(damaged)

    assert read_master_timers(tmp_path) is None


def test_every_flipped_bit_is_seen(tmp_path: Path) -> None:
    write_master_timers(tmp_path, TIMERS)
    whole = (tmp_path / FILE_NAME).read_bytes()

    for position in range(len(whole)):
        (tmp_path / FILE_NAME).write_bytes(
            whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :]
        )
        assert read_master_timers(tmp_path) is None


def test_a_file_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).mkdir()

    with pytest.raises(ConfigFileError, match="cannot write"):
        write_master_timers(tmp_path, TIMERS)
