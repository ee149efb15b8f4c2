"""The table of a broker's state."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.broker.statistics.runtime import Runtime, format_bytes
from tests.unit.broker.parts import BrokerParts, broker_parts

# What tools of RocketMQ 5.3.3 read.
READ_BY_TOOLS = {
    "brokerActive",
    "brokerVersionDesc",
    "putTps",
    "getTransferredTps",
    "sendThreadPoolQueueSize",
    "pullThreadPoolQueueSize",
    "ackThreadPoolQueueSize",
    "sendThreadPoolQueueHeadWaitTimeMills",
    "pullThreadPoolQueueHeadWaitTimeMills",
    "ackThreadPoolQueueHeadWaitTimeMills",
    "pageCacheLockTimeMills",
    "earliestMessageTimeStamp",
    "commitLogDiskRatio",
    "timerReadBehind",
    "timerOffsetBehind",
    "timerCongestNum",
    "timerEnqueueTps",
    "timerDequeueTps",
    "msgPutTotalTodayNow",
    "msgPutTotalTodayMorning",
    "msgPutTotalYesterdayMorning",
    "msgGetTotalTodayNow",
    "msgGetTotalTodayMorning",
    "msgGetTotalYesterdayMorning",
}


def _runtime(parts: BrokerParts) -> Runtime:
    return parts.runtime(parts.samples(), delay_offsets=lambda: {1: 0, 2: 7})


async def test_all_values_that_tools_read_are_present(tmp_path: Path) -> None:
    async with broker_parts(tmp_path) as parts:
        runtime = _runtime(parts)

        table = runtime.from_memory() | runtime.from_disk()

        assert table.keys() >= READ_BY_TOOLS
        assert table["brokerVersionDesc"] == "V5_3_3"
        assert table["scheduleMessageOffset_2"] == "7,0"
        assert (table["timerOffsetBehind"], table["timerReadBehind"]) == ("3", "2")
        assert table["runtime"] == "[ 0 days, 0 hours, 0 minutes, 0 seconds ]"
        assert table["earliestMessageTimeStamp"] == "-1"


async def test_message_statistics_come_from_the_counters(tmp_path: Path) -> None:
    async with broker_parts(tmp_path) as parts:
        runtime = _runtime(parts)
        parts.counters.put("orders").add(4, 1000)
        parts.counters.read("orders", "g").add(2, 500)
        parts.counters.missed_pulls += 1
        parts.counters.failed_puts += 3
        parts.counters.put_waits.note(12.5)
        await parts.clock.advance(10_000 + 3_723_000)

        table = runtime.from_memory()

        assert (table["putMessageTimesTotal"], table["putMessageSizeTotal"]) == ("4", "1000")
        assert table["putMessageAverageSize"] == "250.0"
        assert (table["msgPutTotalTodayNow"], table["msgGetTotalTodayNow"]) == ("4", "2")
        assert table["putMessageFailedTimes"] == "3"
        assert table["putMessageEntireTimeMax"] == "12"
        assert table["runtime"] == "[ 0 days, 1 hours, 2 minutes, 13 seconds ]"
        assert [len(table[name].split(" ")) for name in ("putTps", "getMissTps")] == [3, 3]


async def test_log_statistics_come_from_the_store(tmp_path: Path) -> None:
    async with broker_parts(tmp_path) as parts:
        stored_ms = parts.clock.now_ms()
        await parts.put(3)

        table = _runtime(parts).from_disk()

        assert table["commitLogMinOffset"] == "0"
        assert table["commitLogMaxOffset"] == str(parts.store.log_end)
        assert table["dispatchBehindBytes"] == "0"
        assert table["remainHowManyDataToFlush"] == "0 B"
        assert table["earliestMessageTimeStamp"] == str(stored_ms)
        assert 0 <= float(table["commitLogDiskRatio"]) <= 1
        assert f"commitLogDiskRatio_{tmp_path / 'commitlog'}" in table


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (3 << 40, "3.0 TiB"),
        (1 << 60, "1.0 EiB"),
    ],
)
def test_bytes_are_formatted_for_people(count: int, text: str) -> None:
    assert format_bytes(count) == text
