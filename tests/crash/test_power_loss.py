"""Power loss: synced bytes survive, any others may be lost."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from orbitmq.errors import OrbitError
from orbitmq.store.config import FlushMode
from orbitmq.store.message_store import MessageStore
from tests.crash.power_loss import PowerLossDisk
from tests.crash.power_loss_chain import run_chain
from tests.crash.scenario import Ledger, check_after_crash, draft, small_config


@pytest.mark.parametrize("mode", list(FlushMode))
@pytest.mark.parametrize("seed", range(12))
def test_a_store_survives_one_power_loss_after_the_other(
    tmp_path: Path, seed: int, mode: FlushMode
) -> None:
    run_chain(tmp_path, seed, mode, rounds=5)


def test_the_simulation_sees_a_store_that_does_not_sync(tmp_path: Path) -> None:
    rng = random.Random(1)
    root, target = tmp_path / "store", tmp_path / "after"
    root.mkdir()
    disk = PowerLossDisk(root, rng, honest=False)
    reds = 0

    with disk.installed(), MessageStore(small_config(root)) as store:
        ledger = Ledger()
        for _ in range(10):
            ledger.tried.append(len(ledger.tried))
            store.put(draft(ledger.tried[-1]))
            ledger.acked += 1
            disk.capture(target)
            try:
                check_after_crash(target, ledger, FlushMode.SYNC)
            except (AssertionError, OrbitError):
                reds += 1
    disk.close()

    assert reds > 0


def test_a_store_that_syncs_is_green_where_the_other_is_red(tmp_path: Path) -> None:
    rng = random.Random(1)
    root, target = tmp_path / "store", tmp_path / "after"
    root.mkdir()
    disk = PowerLossDisk(root, rng)

    with disk.installed(), MessageStore(small_config(root)) as store:
        ledger = Ledger()
        for _ in range(10):
            ledger.tried.append(len(ledger.tried))
            store.put(draft(ledger.tried[-1]))
            ledger.acked += 1
            disk.capture(target)

            check_after_crash(target, ledger, FlushMode.SYNC)
    disk.close()
