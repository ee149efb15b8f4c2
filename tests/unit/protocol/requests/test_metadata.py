"""The timer checkpoint as bytes."""

from __future__ import annotations

import pytest

from orbitmq.errors import ProtocolError
from orbitmq.model.versions import DataVersion
from orbitmq.protocol.requests.metadata import TimerCheckpoint

CHECKPOINT = TimerCheckpoint(
    read_ms=1_700_000_000_000,
    timer_log_end=52,
    queue_offset=3,
    master_queue_offset=4,
    data_version=DataVersion(state_version=5, timestamp=6, counter=7),
)


def test_a_checkpoint_is_seven_numbers_in_the_order_of_rocketmq() -> None:
    numbers = (1_700_000_000_000, 52, 3, 4, 5, 6, 7)

    assert CHECKPOINT.encode() == b"".join(number.to_bytes(8, "big") for number in numbers)
    assert TimerCheckpoint.decode(CHECKPOINT.encode()) == CHECKPOINT


@pytest.mark.parametrize("body", [b"", b"x" * 55, b"x" * 57])
def test_a_checkpoint_of_another_size_is_refused(body: bytes) -> None:
    with pytest.raises(ProtocolError, match=f"56 bytes, not {len(body)}"):
        TimerCheckpoint.decode(body)
