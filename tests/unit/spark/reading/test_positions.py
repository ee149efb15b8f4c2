"""Where reads start and end, and how lost messages are reported."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

import pytest

from orbitmq.errors import DataLossError, SettingsError
from orbitmq.model.queues import MessageQueue
from orbitmq.spark.options.read_options import ReadOptions
from orbitmq.spark.reading.offsets import Offsets, nested
from orbitmq.spark.reading.partitions import QueueRange
from orbitmq.spark.reading.positions import (
    batch_ranges,
    ending_offsets,
    lost_text,
    starting_offsets,
    without_lost,
)


def queue(queue_id: int) -> MessageQueue:
    return MessageQueue(topic="t", broker_name="a", queue_id=queue_id)


Q0, Q1 = queue(0), queue(1)


@dataclass
class Bounds:
    """Two queues: messages 10 to 19 of the one, stored at 100 to 109, and none of the other."""

    first: Offsets = field(default_factory=lambda: {Q0: 10, Q1: 3})
    end: Offsets = field(default_factory=lambda: {Q0: 20, Q1: 3})

    def queues(self) -> list[MessageQueue]:
        return [*self.first]

    def earliest(self, queues: Iterable[MessageQueue], /) -> Offsets:
        return {one: self.first[one] for one in queues}

    def latest(self, queues: Iterable[MessageQueue], /) -> Offsets:
        return {one: self.end[one] for one in queues}

    def at_times(self, times_ms: Mapping[MessageQueue, int], /) -> dict[MessageQueue, int | None]:
        found: dict[MessageQueue, int | None] = {}
        for one, time_ms in times_ms.items():
            offset = max(self.first[one], time_ms - 90)
            found[one] = offset if offset < self.end[one] else None
        return found

    def skipped(self, _absent: Collection[MessageQueue], /) -> set[MessageQueue]:
        return set()


def options(**given: str) -> ReadOptions:
    return ReadOptions.from_spark({"namesrvAddr": "h:1", "subscribe": "t", **given}, streaming=None)


def numbers(first: int, second: int) -> str:
    return json.dumps(nested({Q0: first, Q1: second}))


@pytest.mark.parametrize(
    ("given", "start"),
    [
        ({}, (10, 3)),
        ({"startingOffsets": "Earliest"}, (10, 3)),
        ({"startingOffsets": "latest"}, (20, 3)),
        ({"startingOffsets": numbers(12, 3)}, (12, 3)),
        ({"startingOffsets": numbers(-1, -2)}, (20, 3)),
        (
            {"startingTimestamp": "105", "startingOffsetsByTimestampStrategy": "latest"},
            (15, 3),
        ),
        (
            {
                "startingOffsetsByTimestamp": numbers(0, 0),
                "startingOffsetsByTimestampStrategy": "latest",
            },
            (10, 3),
        ),
    ],
)
def test_a_read_starts_where_the_options_say(given: dict[str, str], start: tuple[int, int]) -> None:
    assert starting_offsets(options(**given), Bounds()) == dict(zip((Q0, Q1), start, strict=True))


@pytest.mark.parametrize(
    ("given", "end"),
    [
        ({}, (20, 3)),
        ({"endingOffsets": "latest"}, (20, 3)),
        ({"endingOffsets": numbers(12, -1)}, (12, 3)),
        ({"endingTimestamp": "105"}, (15, 3)),
        ({"endingTimestamp": "999"}, (20, 3)),
        ({"endingOffsetsByTimestamp": numbers(101, 0)}, (11, 3)),
    ],
)
def test_a_batch_ends_where_the_options_say(given: dict[str, str], end: tuple[int, int]) -> None:
    assert ending_offsets(options(**given), Bounds()) == dict(zip((Q0, Q1), end, strict=True))


def test_a_queue_without_a_message_since_a_time_is_an_error_by_default() -> None:
    with pytest.raises(
        SettingsError, match=r"queue 1 of topic 't' on broker 'a' has no message stored at 105 or"
    ):
        starting_offsets(options(startingTimestamp="105"), Bounds())
    with pytest.raises(SettingsError, match=r"and 1 more have none.*Strategy=latest"):
        starting_offsets(options(startingTimestamp="500"), Bounds())


@pytest.mark.parametrize(
    "name",
    ["startingOffsets", "endingOffsets", "startingOffsetsByTimestamp", "endingOffsetsByTimestamp"],
)
def test_an_option_must_name_exactly_the_queues_to_read(name: str) -> None:
    find = starting_offsets if name.startswith("starting") else ending_offsets
    few = json.dumps(nested({Q0: 12}))
    many = json.dumps(nested({Q0: 12, Q1: 3, queue(7): 0}))

    with pytest.raises(SettingsError, match=rf"{name} does not name queue 1 of topic 't'"):
        find(options(**{name: few}), Bounds())
    with pytest.raises(SettingsError, match=rf"{name} names queue 7 .* which is not read"):
        find(options(**{name: many}), Bounds())


@pytest.mark.parametrize("name", ["startingOffsets", "endingOffsets"])
def test_an_offset_after_the_end_is_a_loss(name: str) -> None:
    find = starting_offsets if name.startswith("starting") else ending_offsets
    given = {name: numbers(21, 3)}

    with pytest.raises(DataLossError, match=rf"{name} is 21 for queue 0 .* which ends at 20"):
        find(options(**given), Bounds())
    assert find(options(**given, failOnDataLoss="false"), Bounds()) == {Q0: 20, Q1: 3}


def test_a_batch_reads_from_start_to_end() -> None:
    ranges = batch_ranges(options(endingOffsets=numbers(15, 3)), Bounds())

    assert ranges == [QueueRange(Q0, 10, 15), QueueRange(Q1, 3, 3)]


def test_a_batch_cannot_end_before_it_starts() -> None:
    with pytest.raises(SettingsError, match=r"queue 0 .* would be read from 15 to 12"):
        batch_ranges(
            options(startingOffsets=numbers(15, 3), endingOffsets=numbers(12, 3)), Bounds()
        )


def test_a_batch_between_times_without_messages_is_empty() -> None:
    given = {
        "startingTimestamp": "109",
        "endingTimestamp": "101",
        "startingOffsetsByTimestampStrategy": "latest",
    }

    assert [part.rows for part in batch_ranges(options(**given), Bounds())] == [0, 0]


@pytest.mark.parametrize(
    ("part", "lost", "left"),
    [
        ((12, 18), None, (12, 18)),
        ((5, 15), "messages 5 to 9", (10, 15)),
        ((9, 15), "message 9", (10, 15)),
        ((2, 8), "messages 2 to 7", (8, 8)),
        ((15, 25), "messages 20 to 24", (15, 20)),
        ((22, 25), "messages 22 to 24", (22, 22)),
    ],
)
def test_lost_messages_are_an_error_or_left_out(
    part: tuple[int, int], lost: str | None, left: tuple[int, int], caplog: pytest.LogCaptureFixture
) -> None:
    ranges = [QueueRange(Q0, *part)]

    if lost is not None:
        with pytest.raises(DataLossError, match=f"{lost} of queue 0 of topic 't'.*failOnDataLoss"):
            without_lost(ranges, options(), Bounds())
    with caplog.at_level(logging.WARNING):
        found = without_lost(ranges, options(failOnDataLoss="false"), Bounds())
    assert found == [QueueRange(Q0, *left)]
    assert (lost or "") in caplog.text
    assert bool(caplog.text) == (lost is not None)


def test_an_empty_range_is_not_a_loss() -> None:
    assert without_lost([QueueRange(Q0, 5, 5)], options(), Bounds()) == []


def test_a_loss_is_named_by_its_offsets() -> None:
    assert lost_text(Q0, 3, 4).startswith("message 3 of queue 0 of topic 't' on broker 'a' is gone")
