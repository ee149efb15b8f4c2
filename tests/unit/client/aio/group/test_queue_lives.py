"""Where a consumer resumes in a queue that ends before its offset, or whose topic was missing."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from orbitmq.client.aio.group.queue_lives import QueueLives
from orbitmq.errors import ConnectError
from orbitmq.model.queues import MessageQueue
from tests.unit.client.aio.simulated_brokers import queue


class Stored(NamedTuple):
    """A message."""

    queue_offset: int
    store_ms: int


class Moved(NamedTuple):
    """What a broker replies to an offset that it does not have."""

    next_offset: int
    min_offset: int
    max_offset: int


class StoredTimes:
    """A queue by the times of its messages."""

    def __init__(self, *times_ms: int) -> None:
        self.times_ms = times_ms
        self.is_down = False

    async def offset_at(
        self,
        _queue: MessageQueue,
        timestamp_ms: int,
        *,
        at_master: bool = False,
        address: str | None = None,
    ) -> int:
        assert at_master or address, "a slave may lag"
        if self.is_down:
            raise ConnectError("broker", "down")
        return sum(time_ms < timestamp_ms for time_ms in self.times_ms)

    async def stored_ms_of(
        self, _queue: MessageQueue, offset: int, *, group: str, address: str
    ) -> int | None:
        assert group == "readers"
        assert address
        return self.times_ms[offset] if offset < len(self.times_ms) else None


class NearestTimes(StoredTimes):
    """A queue of RocketMQ 4, which finds the message that is nearest to a time."""

    async def offset_at(
        self,
        _queue: MessageQueue,
        timestamp_ms: int,
        *,
        at_master: bool = False,  # noqa: ARG002  # as brokers are asked
        address: str | None = None,  # noqa: ARG002
    ) -> int:
        distances = [abs(time_ms - timestamp_ms) for time_ms in self.times_ms]
        return distances.index(min(distances))


def lives_after(*times_ms: int, now: StoredTimes) -> QueueLives:
    """A consumer that started at 0 and has pulled messages stored at these times."""
    lives = QueueLives("readers", now)
    lives.note_start(queue(0), 0)
    for offset, time_ms in enumerate(times_ms):
        lives.note_pull(queue(0), offset + 1, Stored(offset, time_ms))
    return lives


async def test_a_new_topic_is_read_from_its_first_message() -> None:
    lives = lives_after(10, 20, 30, now=StoredTimes(40, 50))

    assert await lives.resume_at(queue(0), 3, Moved(2, 0, 2)) == 0


async def test_after_a_crash_that_lost_messages_none_is_read_twice() -> None:
    lives = lives_after(10, 20, 30, 40, 50, now=StoredTimes(10, 20, 60))

    assert await lives.resume_at(queue(0), 5, Moved(3, 0, 3)) == 2


async def test_messages_that_the_filter_left_out_count_as_read() -> None:
    lives = lives_after(10, now=StoredTimes(40))
    lives.note_pull(queue(0), 9, None)

    assert await lives.resume_at(queue(0), 9, Moved(1, 0, 1)) == 0


@pytest.mark.parametrize(
    ("first", "expected"), [(0, 0), (4, 6)], ids=["with its first message", "without"]
)
async def test_a_group_that_starts_after_the_end_reads_a_queue_that_has_its_first_message(
    first: int, expected: int
) -> None:
    lives = QueueLives("readers", StoredTimes())
    lives.note_start(queue(0), 100)

    assert await lives.resume_at(queue(0), 100, Moved(6, first, 6)) == expected


@pytest.mark.parametrize(
    ("offset", "moved"),
    [
        (3, Moved(7, 7, 9)),
        (3, Moved(1, 0, 9)),
        (3, Moved(1, 0, 2)),
        (100, Moved(2, 0, 2)),
        (3, Moved(0, 0, 0)),
    ],
    ids=["deleted", "reset", "reset after the end", "of unknown origin", "empty"],
)
async def test_otherwise_the_broker_decides(offset: int, moved: Moved) -> None:
    lives = lives_after(10, 20, 30, now=StoredTimes(40, 50))

    assert await lives.resume_at(queue(0), offset, moved) == moved.next_offset


async def test_a_chosen_start_after_the_end_skips_the_queue() -> None:
    lives = lives_after(10, now=StoredTimes(10))
    lives.choose(queue(0), 100)
    assert await lives.resume_at(queue(0), 100, Moved(0, 0, 1)) == 1

    lives.note_start(queue(0), 100)
    assert await lives.resume_at(queue(0), 100, Moved(0, 0, 1)) == 1


async def test_a_longer_topic_is_noticed_if_the_old_one_was_missing() -> None:
    lives = lives_after(10, 20, now=StoredTimes(40, 50, 60, 70))
    lives.note_missing(queue(0))

    assert await lives.replaced_at(queue(0), 2) == 0
    assert await lives.replaced_at(queue(0), 2) is None


async def test_a_topic_that_comes_back_unchanged_is_read_on() -> None:
    lives = lives_after(10, 20, now=StoredTimes(10, 20, 30))
    lives.note_missing(queue(0))

    assert await lives.replaced_at(queue(0), 2) is None


async def test_a_check_that_fails_is_repeated() -> None:
    now = StoredTimes(40, 50, 60)
    lives = lives_after(10, 20, now=now)
    lives.note_missing(queue(0))
    now.is_down = True
    with pytest.raises(ConnectError):
        await lives.replaced_at(queue(0), 2)
    now.is_down = False

    assert await lives.replaced_at(queue(0), 2) == 0


async def differs(lives: QueueLives, address: str, offset: int, next_offset: int) -> int | None:
    return await lives.differs_at(queue(0), offset, Moved(next_offset, 0, 9), address)


async def test_another_broker_without_what_was_read_is_read_from_where_it_differs() -> None:
    lives = QueueLives("readers", StoredTimes(10, 40, 50, 60, 70))
    lives.note_pull(queue(0), 3, Stored(2, 30), "old:1")

    assert await differs(lives, "new:1", 3, 3) is None
    assert await differs(lives, "new:1", 3, 5) == 1


async def test_another_broker_with_what_was_read_is_read_on() -> None:
    lives = QueueLives("readers", StoredTimes(10, 20, 30))
    lives.note_pull(queue(0), 2, Stored(1, 20), "old:1")

    assert await differs(lives, "new:1", 2, 3) is None


async def test_a_broker_that_finds_the_nearest_message_is_read_on() -> None:
    lives = QueueLives("readers", NearestTimes(10, 20, 90))
    lives.note_pull(queue(0), 2, Stored(1, 20), "old:1")

    assert await differs(lives, "slave:1", 2, 3) is None


async def test_the_same_broker_is_not_asked() -> None:
    now = StoredTimes()
    now.is_down = True
    lives = QueueLives("readers", now)
    assert await differs(lives, "one:1", 0, 2) is None
    lives.note_pull(queue(0), 2, Stored(1, 20), "one:1")

    assert await differs(lives, "one:1", 2, 3) is None
