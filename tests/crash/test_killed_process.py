"""A killed process loses nothing that it acknowledged."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.store.config import FlushMode
from tests.crash.killing import run_kills


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("mode", "rounds"), [(FlushMode.SYNC, 20), (FlushMode.ASYNC, 10)])
def test_everything_acknowledged_is_there_after_a_kill(
    tmp_path: Path, mode: FlushMode, rounds: int
) -> None:
    kept = run_kills(tmp_path, seed=7, mode=mode, rounds=rounds)

    assert kept > 0
