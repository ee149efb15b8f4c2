"""What crash tests share: folders in memory where that is possible, and no real syncs."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

SHARED_MEMORY = Path("/dev/shm")


@pytest.fixture
def tmp_path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Take the place of pytest's folder on disk."""
    if not SHARED_MEMORY.is_dir():
        yield tmp_path_factory.mktemp("crash")
        return
    folder = Path(tempfile.mkdtemp(prefix="orbitmq-crash-", dir=SHARED_MEMORY))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def no_real_syncs() -> Iterator[None]:
    """Sync nothing: a test that damages files by itself needs no disk."""
    with mock.patch("os.fdatasync"), mock.patch("os.fsync"):
        yield
