"""Transactions through a killed broker: committed ones are delivered once, others never."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.crash.killed_transactions import Decisions, run_round, started


@pytest.mark.timeout(240)
def test_transactions_end_as_decided_however_often_the_broker_is_killed(tmp_path: Path) -> None:
    decisions = Decisions()
    with started(tmp_path) as site:
        run_round(site, decisions, transactions=40, killed_after=[15])

        found = site.read()

    assert found == Counter(dict.fromkeys(decisions.committed, 1))
