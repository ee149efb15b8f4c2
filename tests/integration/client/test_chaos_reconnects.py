"""Clients that lose their connections again and again hold no more than before."""

from __future__ import annotations

import pytest

from tests.integration.client.chaos_site import ChaosSite
from tests.integration.client.reconnects import campaign

ROUNDS = 300


@pytest.mark.timeout(240)
async def test_what_clients_hold_does_not_grow_with_reconnects(chaos: ChaosSite) -> None:
    verdict = await campaign(chaos, ROUNDS)

    assert verdict.faults == []
    assert verdict.acked == ROUNDS
    # The producer alone makes a connection after every cut.
    assert verdict.reconnects > ROUNDS
