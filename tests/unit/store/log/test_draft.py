"""Messages on their way into the store, and their receipts."""

from __future__ import annotations

from orbitmq.model.queues import PhysicalOffset, QueueOffset
from orbitmq.record.hosts import encode_host
from orbitmq.record.message_id import decode_message_id
from orbitmq.store.log.draft import NOWHERE, Draft, Receipt, StoreDurability


def test_a_receipt_knows_where_its_record_ends_and_its_id() -> None:
    receipt = Receipt(PhysicalOffset(100), 50, QueueOffset(0), 0, encode_host("10.9.8.7", 10911))

    assert receipt.end == 150
    assert decode_message_id(receipt.message_id) == ("10.9.8.7", 10911, 100)
    assert receipt.durability is StoreDurability.MEMORY


def test_a_draft_as_an_entry_of_a_batch_has_everything_but_its_queue() -> None:
    draft = Draft(topic="orders", queue_id=3, body=b"body", properties=b"p", flag=1, born_ms=2)

    assert draft.entry == (b"body", b"p", 1, 0, 2, NOWHERE, 0, 0)
