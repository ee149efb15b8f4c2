"""Following: tells slaves of ours what is visible, and that tables changed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from orbitmq.clock import time_limit
from orbitmq.errors import RequestRefusedError
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.replication import FollowMaster, FollowReply

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.broker.replication.copies import Copies
    from orbitmq.broker.replication.table_changes import TableChanges
    from orbitmq.clock import Clock
    from orbitmq.protocol.command import Command
    from orbitmq.store.message_store import MessageStore
    from orbitmq.transport.connection import Connection
    from orbitmq.transport.request_loop import Handler

WAIT_MS_MAX: Final = 5000
WAITING_MAX: Final = 256
_ADDRESS_MAX: Final = 255
# Slaves learn of what became visible in steps of this many milliseconds.
_PACE_MS: Final = 5


@dataclass(slots=True, eq=False, kw_only=True)
class FollowRequests:
    """Answers slaves; each waits until there is something new."""

    broker_name: Callable[[], str]
    is_master: Callable[[], bool]
    role: str
    slaves_awaited: Callable[[], int]
    epoch: Callable[[], int]
    permission: Callable[[], int]
    # Called with the address of a slave that knows a larger epoch, and this epoch.
    on_claim: Callable[[str, int], None]
    store: MessageStore
    copies: Copies
    tables: TableChanges
    log_file_bytes: int
    clock: Clock
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop, init=False)
    _waiting: set[asyncio.Future[None]] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        self.store.on_visible(self._shown)
        self.tables.on_change = self._wake

    def by_code(self) -> Mapping[int, Handler]:
        """The handlers by request code."""
        return {RequestCode.FOLLOW_MASTER: self.follow}

    async def follow(self, _: Connection, request: Command) -> Command:
        """Return how far the log is visible, once there is more than the slave knows."""
        asked = FollowMaster.decode(request.fields)
        if asked.broker_name != self.broker_name():
            raise RequestRefusedError(
                ResponseCode.INVALID_PARAMETER,
                f"this broker is {self.broker_name()!r}, and a slave of {asked.broker_name!r} "
                "cannot follow it",
                hint="master and slaves have the same brokerName",
            )
        self.on_claim(asked.broker_address, asked.epoch)
        if asked.link:
            self.copies.introduce(
                asked.link,
                asked.broker_id,
                asked.broker_address[:_ADDRESS_MAX],
                is_flushed=asked.is_flushed,
            )
        await self._wait_for_news(asked)
        store = self.store
        return request.reply(
            FollowReply(
                visible=Long(store.visible),
                log_start=Long(store.log_start),
                log_end=Long(store.log_end),
                log_file_bytes=Long(self.log_file_bytes),
                is_master=self.is_master(),
                epoch=Long(self.epoch()),
                role=self.role,
                slaves_awaited=self.slaves_awaited(),
                slaves=len(self.copies),
                tables=self.tables.state(),
                permission=self.permission(),
            )
        )

    async def _wait_for_news(self, asked: FollowMaster) -> None:
        wait_ms = min(asked.wait_ms, WAIT_MS_MAX)
        if wait_ms <= 0 or len(self._waiting) >= WAITING_MAX:
            return
        try:
            async with time_limit(self.clock, wait_ms):
                while not self._has_news(asked):
                    await self._until_woken(asked)
        except TimeoutError:
            return
        await self.clock.sleep_ms(_PACE_MS)

    def _has_news(self, asked: FollowMaster) -> bool:
        return self.store.visible > asked.visible or (
            asked.tables is not None and asked.tables != self.tables.state()
        )

    async def _until_woken(self, asked: FollowMaster) -> None:
        woken: asyncio.Future[None] = self._loop.create_future()
        self._waiting.add(woken)
        try:
            # More may have become visible before it was known that somebody waits.
            if not self._has_news(asked):
                await woken
        finally:
            self._waiting.discard(woken)

    def _shown(self, _: object) -> None:
        # Perf: a hop to the loop only while a slave waits.
        if self._waiting:
            self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        for woken in self._waiting:
            if not woken.done():
                woken.set_result(None)
