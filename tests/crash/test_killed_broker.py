"""A broker process that is killed under load ends timers and transactions as clients were told."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.store.config import FlushMode
from tests.crash.broker_kills import run_broker_kills


@pytest.mark.timeout(240)
def test_timers_and_transactions_survive_kills_of_their_broker(tmp_path: Path) -> None:
    found = run_broker_kills(tmp_path, 1, FlushMode.SYNC, rounds=1)

    assert found["timers"] > 0
    assert found["commits"] > 0
