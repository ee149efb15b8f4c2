"""Storing: the durability that handlers get for messages they put."""

from __future__ import annotations

from pathlib import Path

from orbitmq.broker.confirmations import Confirmations
from orbitmq.broker.durability import IN_MEMORY, ON_DISK
from orbitmq.broker.storing import Storing
from orbitmq.clock import ManualClock
from orbitmq.store.config import FlushMode
from orbitmq.store.message_store import MessageStore
from tests.unit.store.stores import message, open_store


def _storing(store: MessageStore, *, is_sync: bool = True) -> Storing:
    confirmations = Confirmations(
        flushed=store.flushed,
        is_fenced=lambda: store.is_fenced,
        timeout_ms=5000,
        clock=ManualClock(),
        is_sync=is_sync,
    )
    store.on_flushed(confirmations.flushed)
    return Storing(store, confirmations)


async def test_under_sync_flush_messages_are_on_disk_when_put_returns(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        stored = await _storing(store).put([message(), message()])

        assert stored.durability is ON_DISK
        assert store.flushed >= stored.receipts[-1].end
        assert [receipt.queue_offset for receipt in stored.receipts] == [0, 1]


async def test_without_waiting_messages_are_in_memory(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        stored = await _storing(store).put([message()], wait=False)

        assert stored.durability is IN_MEMORY


async def test_under_async_flush_messages_are_visible_at_once(tmp_path: Path) -> None:
    with open_store(tmp_path, flush_mode=FlushMode.ASYNC) as store:
        stored = await _storing(store, is_sync=False).put([message()])

        assert stored.durability is IN_MEMORY
        assert store.end_of("orders", 0) == 1
