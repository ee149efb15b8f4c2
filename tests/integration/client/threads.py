"""Blocking clients in tests whose loop a broker runs on: work in threads, and none left over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from tests import leftovers

WAIT_SECONDS = 60

T = TypeVar("T")


async def blocking(action: Callable[[], T]) -> T:
    """Do in a thread what would keep the broker from answering."""
    return await asyncio.wait_for(asyncio.to_thread(action), WAIT_SECONDS)


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    """Files that import this fixture have it for every test."""
    # A suite that this worker ran before may keep a cluster until the end.
    before = leftovers.threads("orbitmq-")
    yield
    leftovers.no_threads_since(before, "orbitmq-")
