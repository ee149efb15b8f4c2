"""Threads for blocking clients, in tests whose loop runs a broker; none may be left over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from tests import leftovers

WAIT_SECONDS = 60

T = TypeVar("T")


async def blocking(action: Callable[[], T]) -> T:
    """Run in a thread what would block the broker's loop."""
    return await asyncio.wait_for(asyncio.to_thread(action), WAIT_SECONDS)


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    """Applies to every test of the files that import it."""
    # A suite that this worker ran before may keep a cluster until the end.
    before = leftovers.threads("orbitmq-")
    yield
    leftovers.no_threads_since(before, "orbitmq-")
