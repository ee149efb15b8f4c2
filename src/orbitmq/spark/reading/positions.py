"""Where a read starts and ends in each queue, and how lost messages are reported."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from orbitmq.errors import DataLossError, SettingsError
from orbitmq.spark.options.queue_texts import parse_numbers, parse_times, queue_text
from orbitmq.spark.options.read_options import EARLIEST, EARLIEST_NUMBER, LATEST, LATEST_NUMBER
from orbitmq.spark.reading.partitions import QueueRange

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.model.queues import MessageQueue
    from orbitmq.spark.options.read_options import ReadOptions
    from orbitmq.spark.reading.offsets import Offsets

log = logging.getLogger(__name__)

_HINT = "with failOnDataLoss=false the query continues without them"


class OffsetLookup(Protocol):
    """Finds queues and their offsets; implemented by `QueueView`."""

    def queues(self) -> list[MessageQueue]:
        """List the queues to read."""

    def earliest(self, queues: Iterable[MessageQueue], /) -> Offsets:
        """The offset of the oldest message of each queue."""

    def latest(self, queues: Iterable[MessageQueue], /) -> Offsets:
        """The offset after the newest message of each queue."""

    def at_times(self, times_ms: Mapping[MessageQueue, int], /) -> dict[MessageQueue, int | None]:
        """The first message of each queue stored at its time or later; None if it has none."""

    def skipped(self, absent: Collection[MessageQueue], /) -> set[MessageQueue]:
        """Those of absent queues that are skipped, since their broker is missing."""


# --- where ----------------------------------------------------------------------------------------


def starting_offsets(options: ReadOptions, view: OffsetLookup) -> Offsets:
    """Where a read starts by its options; earliest by default."""
    queues = view.queues()
    if options.starting_timestamp is not None:
        return _start_at(dict.fromkeys(queues, options.starting_timestamp), options, view)
    if options.starting_offsets_by_timestamp:
        name = "startingOffsetsByTimestamp"
        times_ms = parse_times(options.starting_offsets_by_timestamp, name=name)
        times_ms = _of_present(times_ms, queues, name, view)
        return _start_at(times_ms, options, view)
    text = options.starting_offsets.lower()
    if text == LATEST:
        return view.latest(queues)
    if text in {"", EARLIEST}:
        return view.earliest(queues)
    name = "startingOffsets"
    asked = parse_numbers(options.starting_offsets, name=name, low=EARLIEST_NUMBER)
    present = _of_present(asked, queues, name, view)
    # A stream reads queues that are skipped from their offset once their broker is back.
    later = {queue: offset for queue, offset in asked.items() if offset >= 0}
    return {**later, **_chosen(present, options, view, name)}


def ending_offsets(options: ReadOptions, view: OffsetLookup) -> Offsets:
    """Where a batch ends by its options; at the present end by default."""
    queues = view.queues()
    latest = view.latest(queues)
    if options.ending_timestamp is not None:
        found = view.at_times(dict.fromkeys(queues, options.ending_timestamp))
        return _or_else(found, latest)
    if options.ending_offsets_by_timestamp:
        name = "endingOffsetsByTimestamp"
        times_ms = parse_times(options.ending_offsets_by_timestamp, name=name)
        times_ms = _of_present(times_ms, queues, name, view)
        return _or_else(view.at_times(times_ms), latest)
    if options.ending_offsets.lower() in {"", LATEST}:
        return latest
    name = "endingOffsets"
    asked = parse_numbers(options.ending_offsets, name=name, low=LATEST_NUMBER)
    asked = _of_present(asked, queues, name, view)
    return _chosen(asked, options, view, name)


def batch_ranges(options: ReadOptions, view: OffsetLookup) -> list[QueueRange]:
    """What a batch reads; both ends are resolved now."""
    start = starting_offsets(options, view)
    end = ending_offsets(options, view)
    ranges: list[QueueRange] = []
    for queue in sorted(start.keys() & end.keys()):
        if start[queue] > end[queue] and options.starting_offsets and options.ending_offsets:
            raise SettingsError(
                f"{queue_text(queue)} would be read from {start[queue]} to {end[queue]}",
                hint="endingOffsets is before startingOffsets",
            )
        ranges.append(QueueRange(queue, start[queue], max(start[queue], end[queue])))
    return ranges


def _start_at(
    times_ms: Mapping[MessageQueue, int], options: ReadOptions, view: OffsetLookup
) -> Offsets:
    found = view.at_times(times_ms)
    without = sorted(queue for queue, offset in found.items() if offset is None)
    if without and options.starting_offsets_by_timestamp_strategy == "error":
        raise SettingsError(
            f"{queue_text(without[0])} has no message stored at {times_ms[without[0]]} or later"
            + (f", and {len(without) - 1} more have none" if len(without) > 1 else ""),
            hint="startingOffsetsByTimestampStrategy=latest reads such queues from their end",
        )
    return _or_else(found, view.latest(without))


def _or_else(found: Mapping[MessageQueue, int | None], instead: Offsets) -> Offsets:
    return {queue: instead[queue] if offset is None else offset for queue, offset in found.items()}


def _chosen(asked: Offsets, options: ReadOptions, view: OffsetLookup, name: str) -> Offsets:
    """Turn -2 and -1 into offsets, and refuse offsets that the queues do not have."""
    earliest, latest = view.earliest(asked), view.latest(asked)
    chosen: Offsets = {}
    for queue, number in asked.items():
        offset = {EARLIEST_NUMBER: earliest[queue], LATEST_NUMBER: latest[queue]}.get(
            number, number
        )
        if offset > latest[queue]:
            report_loss(
                options,
                f"{name} is {offset} for {queue_text(queue)}, which ends at {latest[queue]}",
            )
            offset = latest[queue]
        chosen[queue] = offset
    return chosen


def _of_present(
    named: dict[MessageQueue, int], queues: Sequence[MessageQueue], name: str, view: OffsetLookup
) -> dict[MessageQueue, int]:
    """Drop queues of missing brokers that are skipped; refuse an option that names others."""
    skipped = view.skipped(named.keys() - set(queues))
    for queue in sorted(skipped):
        log.warning(
            "%s names %s, and that broker is missing: not read, by missingBrokers=skip",
            name,
            queue_text(queue),
        )
    present = {queue: number for queue, number in named.items() if queue not in skipped}
    _check_same(present, queues, name)
    return present


def _check_same(named: Iterable[MessageQueue], queues: Sequence[MessageQueue], name: str) -> None:
    """Refuse an option that does not name exactly the queues to read."""
    unknown = sorted(set(named) - set(queues))
    if unknown:
        raise SettingsError(
            f"{name} names {queue_text(unknown[0])}, which is not read",
            hint="name exactly the queues to read",
        )
    missing = sorted(set(queues) - set(named))
    if missing:
        raise SettingsError(
            f"{name} does not name {queue_text(missing[0])}",
            hint="name every queue to read: -2 is earliest, -1 is latest",
        )


# --- lost messages --------------------------------------------------------------------------------


def report_loss(options: ReadOptions, text: str, *, hint: str = _HINT) -> None:
    """Raise for lost messages, or only log them, by the option failOnDataLoss."""
    if options.fail_on_data_loss:
        raise DataLossError(text, hint=hint)
    log.warning("data loss: %s", text)


def lost_text(queue: MessageQueue, start: int, end: int) -> str:
    """Name the messages that are lost."""
    which = f"message {start}" if end == start + 1 else f"messages {start} to {end - 1}"
    verb = "is" if end == start + 1 else "are"
    return f"{which} of {queue_text(queue)} {verb} gone: deleted, or lost with its broker"


def without_lost(
    ranges: Sequence[QueueRange], options: ReadOptions, view: OffsetLookup
) -> list[QueueRange]:
    """Drop lost messages from ranges, and report them."""
    asked = sorted({part.queue for part in ranges if part.rows > 0})
    earliest, latest = view.earliest(asked), view.latest(asked)
    left: list[QueueRange] = []
    for part in ranges:
        if part.rows <= 0:
            continue
        queue = part.queue
        start = min(max(part.start, earliest[queue]), part.end)
        end = max(start, min(part.end, latest[queue]))
        if start > part.start:
            report_loss(options, lost_text(queue, part.start, start))
        if end < part.end:
            report_loss(options, lost_text(queue, end, part.end))
        left.append(QueueRange(queue, start, end))
    return left
