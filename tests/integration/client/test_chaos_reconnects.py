"""Clients that lose their connections again and again do not leak."""

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
    """The test run keeps log records, which would grow with every cut connection."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.usefixtures("no_log")
@pytest.mark.timeout(480)
async def test_resources_of_clients_do_not_grow_with_reconnects(chaos: ChaosSite) -> None:
    verdict = await campaign(chaos, ROUNDS)

    assert verdict.faults == []
    assert verdict.acked == ROUNDS
    # The producer alone reconnects after every cut.
    assert verdict.reconnects > ROUNDS
