"""Storing: the durability that handlers get for messages they put."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.broker.confirmations import Confirmations
from orbitmq.broker.storing import Stored, Storing
from orbitmq.clock import ManualClock
from orbitmq.protocol.codes import ResponseCode
from orbitmq.store.config import FlushMode
from orbitmq.store.log.draft import StoreDurability
from orbitmq.store.message_store import MessageStore
from tests.unit.store.stores import message, open_store


def _storing(store: MessageStore, flush_mode: FlushMode) -> Storing:
    confirmations = Confirmations(
        flushed=store.flushed,
        is_fenced=lambda: store.is_fenced,
        timeout_ms=5000,
        clock=ManualClock(),
    )
    store.on_flushed(confirmations.flushed)
    return Storing(store, confirmations, flush_mode=flush_mode)


async def test_under_sync_flush_messages_are_on_disk_when_put_returns(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        stored = await _storing(store, FlushMode.SYNC).put([message(), message()])

        assert stored.durability is StoreDurability.DISK
        assert store.flushed >= stored.receipts[-1].end
        assert [receipt.queue_offset for receipt in stored.receipts] == [0, 1]


async def test_without_waiting_messages_are_in_memory(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        stored = await _storing(store, FlushMode.SYNC).put([message()], wait=False)

        assert stored.durability is StoreDurability.MEMORY


async def test_under_async_flush_messages_are_visible_at_once(tmp_path: Path) -> None:
    with open_store(tmp_path, flush_mode=FlushMode.ASYNC) as store:
        stored = await _storing(store, FlushMode.ASYNC).put([message()])

        assert stored.durability is StoreDurability.MEMORY
        assert store.end_of("orders", 0) == 1


@pytest.mark.parametrize(
    ("durability", "code"),
    [
        (StoreDurability.DISK, ResponseCode.SUCCESS),
        (StoreDurability.MEMORY, ResponseCode.SUCCESS),
        (StoreDurability.DISK_TIMEOUT, ResponseCode.FLUSH_DISK_TIMEOUT),
    ],
)
def test_durability_has_a_response_code(durability: StoreDurability, code: ResponseCode) -> None:
    assert Stored(receipts=[], durability=durability).code is code
