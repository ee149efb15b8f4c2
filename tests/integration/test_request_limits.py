"""Hostile requests of every code cost a bounded time, memory and disk."""

from __future__ import annotations

import random
from pathlib import Path

from tests.integration.request_limits import attack, running_site


async def test_no_request_costs_more_than_its_limits(tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    with running_site(tmp_path) as site:
        report = await attack(site, seed=seed, rounds=1)

    assert report.problems == [], f"--seed {seed}"
    assert report.requests >= 80
