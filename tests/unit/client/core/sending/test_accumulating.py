"""Messages that wait for others: which may, and when a batch is full."""

from __future__ import annotations

import pytest

from orbitmq.client.core.sending.accumulating import Accumulating, BatchKey
from orbitmq.model.messages import Message

KEY = BatchKey("orders", None, True, None)  # a tuple of parts


def _accumulating(
    *, batch_bytes_max: int = 1000, held_bytes_max: int = 10_000
) -> Accumulating[int]:
    return Accumulating(batch_bytes_max=batch_bytes_max, held_bytes_max=held_bytes_max)


def test_a_small_message_waits() -> None:
    assert _accumulating().takes(Message("orders", b"body"))


@pytest.mark.parametrize(
    "message",
    [
        Message("orders", b"body", delay_level=1),
        Message("orders", bytes(1000)),
        Message("%RETRY%billing", b"body"),
        Message("orders", b"body").with_reserved({"PGROUP": "group"}),
        "no message at all",
    ],
)
def test_a_message_that_no_batch_takes_does_not_wait(message: object) -> None:
    assert not _accumulating().takes(message)


def test_nothing_waits_when_too_much_does() -> None:
    accumulating = _accumulating(held_bytes_max=200)
    message = Message("orders", bytes(100))
    batch = accumulating.add(KEY, message, 1)

    assert not accumulating.takes(message)

    accumulating.release(batch)
    assert accumulating.held_bytes == 0
    assert accumulating.takes(message)


def test_messages_of_one_key_share_a_batch_until_it_is_closed() -> None:
    accumulating = _accumulating()
    message = Message("orders", b"body")

    first = accumulating.add(KEY, message, 1)
    assert accumulating.add(KEY, message, 2) is first
    assert accumulating.close(first)
    second = accumulating.add(KEY, message, 3)

    assert (first.waiting, second.waiting) == ([1, 2], [3])
    assert not accumulating.close(first)
    assert accumulating.open_batches() == [second]


def test_messages_of_other_keys_have_other_batches() -> None:
    accumulating = _accumulating()
    message = Message("orders", b"body")

    first = accumulating.add(KEY, message, 1)
    second = accumulating.add(KEY._replace(wait_store_ok=False), message, 2)

    assert first is not second
    assert accumulating.open_batches() == [first, second]


def test_a_batch_is_full_at_its_limit() -> None:
    accumulating = _accumulating(batch_bytes_max=1000)

    batch = accumulating.add(KEY, Message("orders", bytes(400)), 1)
    assert not accumulating.is_full(batch)
    accumulating.add(KEY, Message("orders", bytes(400)), 2)

    assert accumulating.is_full(batch)
