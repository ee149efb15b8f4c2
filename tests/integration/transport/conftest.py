"""Every test here runs on uvloop and on plain asyncio, and must leave nothing behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping

import pytest
import uvloop

from tests.integration.held_ports import held_port
from tests.integration.transport import leaks

nothing_is_left_behind = leaks.nothing_is_left_behind


def pytest_asyncio_loop_factories(
    config: pytest.Config,  # noqa: ARG001  # the hook's signature
    item: pytest.Item,  # noqa: ARG001
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.SelectorEventLoop}


@pytest.fixture
def own_port() -> Iterator[int]:
    """A port that nobody else gets, whether the test listens on it or not."""
    with held_port() as port:
        yield port
