"""Recent halves: which are remembered, and what it costs to forget the oldest."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from orbitmq.broker.transactions.half_messages import Half
from orbitmq.broker.transactions.recent_halves import RECENT_MAX, RecentHalves


@dataclass
class Open:
    """Some open halves."""

    halves: dict[int, Half] = field(default_factory=dict)


def open_halves(count: int) -> Open:
    return Open(
        {
            number: Half(
                first_offset=number,
                offset=number,
                physical_offset=number * 300,
                record_bytes=300,
                topic="T",
                queue_id=0,
                checks=0,
                since_ms=0,
                immunity_ms=None,
            )
            for number in range(count)
        }
    )


def test_beyond_the_limit_the_half_that_was_sent_longest_ago_is_forgotten() -> None:
    recent = RecentHalves(open_halves(5), count_max=3)
    for content, first_offset in [(70, 0), (71, 1), (72, 2), (70, 3), (73, 4)]:
        recent.add(content, first_offset)

    found = [recent.find(content) for content in (70, 71, 72, 73)]

    assert [half and half.first_offset for half in found] == [3, None, 2, 4]


def adds_ms(count_max: int, adds: int) -> float:
    """The processor time to add halves once as many as possible are remembered."""
    recent = RecentHalves(Open(), count_max=count_max)
    for number in range(count_max):
        recent.add(number, number)
    began_s = time.process_time()
    for number in range(count_max, count_max + adds):
        recent.add(number, number)
    return (time.process_time() - began_s) * 1000


def test_a_half_is_added_as_fast_to_many_as_to_few() -> None:
    few_ms = adds_ms(100, 100_000)

    many_ms = adds_ms(RECENT_MAX, 100_000)

    # A search for the oldest made it 60 times as slow.
    assert many_ms < 10 * few_ms
