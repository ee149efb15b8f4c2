"""Event loops of servers and blocking clients: uvloop where it is installed."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def native_loop() -> asyncio.AbstractEventLoop:
    """Make an event loop: uvloop's, or asyncio's own where uvloop is not installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def run(main: Coroutine[Any, Any, T], *, use_native_loop: bool) -> T:
    """Run `main` to completion on a new loop."""
    loop_factory = native_loop if use_native_loop else None
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        return runner.run(main)
