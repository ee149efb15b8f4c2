"""Power loss of a whole broker: timers and transactions end as their clients were told."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from orbitmq.store.config import FlushMode
from tests.crash.broker_power_loss import run_broker_chain


@pytest.mark.timeout(240)
@pytest.mark.parametrize("mode", list(FlushMode))
@pytest.mark.parametrize("seed", [3, 5])
async def test_timers_and_transactions_survive_one_power_loss_after_the_other(
    tmp_path: Path, seed: int, mode: FlushMode, caplog: pytest.LogCaptureFixture
) -> None:
    # What was found at each start explains what is delivered twice.
    caplog.set_level(logging.INFO, logger="orbitmq.store.timers")

    await run_broker_chain(tmp_path, seed, mode, rounds=3)
