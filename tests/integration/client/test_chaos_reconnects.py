"""Clients that lose their connections again and again hold no more than before."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.integration.client.chaos_site import ChaosSite, patience
from tests.integration.client.reconnects import campaign

__all__ = ["patience"]

ROUNDS = 300


@pytest.fixture
def no_log() -> Iterator[None]:
    """What is logged is kept by the test run: it would grow with every connection that is cut."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.usefixtures("no_log")
@pytest.mark.timeout(480)
async def test_what_clients_hold_does_not_grow_with_reconnects(chaos: ChaosSite) -> None:
    verdict = await campaign(chaos, ROUNDS)

    assert verdict.faults == []
    assert verdict.acked == ROUNDS
    # The producer alone makes a connection after every cut.
    assert verdict.reconnects > ROUNDS
