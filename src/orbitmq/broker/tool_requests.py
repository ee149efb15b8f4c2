"""Requests of tools that take long: few at work, few in line, others refused.

Threads: the event loop's.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from orbitmq.errors import RequestRefusedError
from orbitmq.protocol.codes import ResponseCode

AT_WORK_MAX: Final = 2
WAITING_MAX: Final = 8


@dataclass(slots=True, eq=False)
class ToolRequests:
    """The requests of one kind."""

    kind: str
    # Those at work, and those that wait for it.
    count: int = field(default=0, init=False)
    _may_work: asyncio.Semaphore = field(
        default_factory=lambda: asyncio.Semaphore(AT_WORK_MAX), init=False
    )

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        """Wait for a place, and hold it for the block; raises if too many wait."""
        if self.count >= AT_WORK_MAX + WAITING_MAX:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_BUSY,
                f"{self.count} requests {self.kind} are at work or wait, the limit",
                hint="send one after the other, and retry after a pause",
            )
        self.count += 1
        try:
            async with self._may_work:
                yield
        finally:
            self.count -= 1
