"""The event loop that servers run on: uvloop where it installs, else asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T], *, use_native_loop: bool) -> T:
    """Run `main` to its end on a loop of its own."""
    loop_factory = None
    if use_native_loop:
        try:
            import uvloop
        except ImportError:
            pass
        else:
            loop_factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        return runner.run(main)
