"""A broker under every expensive request at once: healthy clients are served, memory is bounded."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.broker.under_attack import (
    BYTES_MAX,
    WAIT_MS_MAX,
    attack,
    attacked_broker,
    measure,
    p99,
)


@pytest.mark.timeout(180)
async def test_a_healthy_client_is_served_while_others_send_what_costs_most(
    tmp_path: Path,
) -> None:
    async with attacked_broker(tmp_path) as (peer, broker, port), attack(port) as sent:
        attacked = await measure(peer, broker, 4)

    assert p99(attacked.busy_ms) < WAIT_MS_MAX, (str(attacked), sent)
    assert attacked.resident_bytes_max < BYTES_MAX, str(attacked)
    assert min(sent.values()) > 0
