"""How fast are a million messages delivered that are due in one second, while sends go on?

    python -m benchmarks.timer_burst [--messages N] [--no-java] [--smoke]

The messages are sent ahead of time. Before they are due, producers begin to send others at a steady
rate to waiting consumers, for `--seconds`, while the broker delivers.
"""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Final

import psutil

from benchmarks.broker_latency import TOPIC as SENT_TOPIC
from benchmarks.broker_latency import DeliveryTime
from benchmarks.broker_rounds import SMOKE, Column, Figures, ask, options
from benchmarks.brokers import ASYNC, QUEUES, BrokerUnderLoad
from benchmarks.load import LoadError, Slice, cpu_seconds
from benchmarks.timer_load import OFFICIAL_SETTINGS, send_timers, wait_taken_in
from orbitmq.clock import SystemClock

TOPIC: Final = "benchmark_burst"
RATE: Final = "500 messages/s"
# The first messages say how fast a broker takes them; the rest are sent with this much to spare.
_FIRST: Final = 20_000
_SPARE: Final = 1.5
_SPARE_MS: Final = 8_000
_TRIES: Final = 4
_SECOND_MS: Final = 1_000
_DELIVERY_TIMEOUT_MS: Final = 300_000
# The first messages are not due before the end.
_FAR_MS: Final = 3_600_000
MIB: Final = 2**20
SMOKE_MESSAGES: Final = 2_000
# Sends begin so long before the messages are due, and end before the last is delivered: nobody
# delivers faster.
_BEFORE_MS: Final = 1_000
_DELIVERED_PER_S_MAX: Final = 100_000
_POLL_S: Final = 0.02
COLUMNS: Final = (
    Column(figure="delivered_per_s", title="delivered/s", is_compared=True),
    Column(
        figure="delivery_cpu_us",
        title="broker CPU µs/message: delivery",
        digits=1,
        is_compared=True,
    ),
    Column(figure="send_cpu_us", title="send and take in", digits=1, is_compared=True),
    Column(figure="first_late_ms", title="first late ms", is_compared=True),
    Column(figure="other_send_p50_us", title="other sends p50 µs"),
    Column(figure="other_send_p99_us", title="other sends p99 µs", is_compared=True),
    Column(figure="other_delivery_p50_us", title="their delivery p50 µs"),
    Column(figure="other_delivery_p99_us", title="their delivery p99 µs", is_compared=True),
    Column(figure="resident_mib", title="resident MiB"),
)


class TimerBurst:
    """Has brokers deliver many messages at once."""

    topics = (TOPIC, SENT_TOPIC)

    def __init__(self, folder: Path, *, messages: int, seconds: float) -> None:
        self._folder = folder
        self._messages = messages
        self._seconds = seconds
        self._spare_ms = min(messages, _SPARE_MS)
        self.workloads = (f"{messages:,} messages due in one second",)
        self._others = DeliveryTime(folder)
        self._serial = 0
        self._clock = SystemClock()

    async def prepare(self, broker: BrokerUnderLoad) -> None:
        """Nothing has to be there before."""

    async def load(self, broker: BrokerUnderLoad, _: str, seconds: float) -> Figures:
        """Send the messages, and see them delivered while others are sent; fewer to warm up."""
        count = max(int(self._messages * min(seconds / self._seconds, 1)), QUEUES)
        process = psutil.Process(broker.pid)
        cpu_before_s, serial_before = cpu_seconds(process), self._serial
        due_ms, before, messages = await self._send(broker, count)
        sent, send_cpu_s = self._serial - serial_before, cpu_seconds(process) - cpu_before_s
        resident_mib = process.memory_info().rss / MIB
        await self._clock.sleep_ms(due_ms - _BEFORE_MS - self._clock.now_ms())
        cpu_before_s = cpu_seconds(process)
        others, (first_late_ms, took_s) = await asyncio.gather(
            self._send_others(broker, count),
            asyncio.to_thread(self._delivery, broker, before, messages, due_ms),
        )
        delivery_cpu_s = cpu_seconds(process) - cpu_before_s
        broker.wait_stored(TOPIC, before + messages)
        return {
            "messages": messages,
            "delivered_per_s": messages / took_s,
            "first_late_ms": first_late_ms,
            "delivery_cpu_us": delivery_cpu_s * 1e6 / messages,
            "send_cpu_us": send_cpu_s * 1e6 / sent,
            "resident_mib": resident_mib,
            **{
                f"other_{name}": others[name]
                for name in ("send_p50_us", "send_p99_us", "delivery_p50_us", "delivery_p99_us")
            },
        }

    async def _send(self, broker: BrokerUnderLoad, count: int) -> tuple[int, int, int]:
        """Send all messages; returns when they are due, where their topic ended, how many they are."""
        first = await self._send_due(broker, self._clock.now_ms() + _FAR_MS, min(count, _FIRST))
        spare_ms = count / first.calls_per_second * _SPARE * 1000 + self._spare_ms
        for _ in range(_TRIES):
            before = await asyncio.to_thread(lambda: sum(broker.ends(TOPIC)))
            due_ms = self._clock.now_ms() + int(spare_ms)
            sent = await self._send_due(broker, due_ms, count)
            messages = sent.calls + sent.first_calls
            await wait_taken_in(broker)
            if self._clock.now_ms() < due_ms - _BEFORE_MS:
                return due_ms, before, messages
            print(
                f"again: {broker.server} took {sent.seconds:.1f} s to take {messages}", flush=True
            )
            await asyncio.to_thread(broker.wait_stored, TOPIC, before + messages)
            spare_ms *= 2
        raise LoadError(f"{broker.server} is too slow: not sent within {spare_ms / 2:.0f} ms")

    async def _send_due(self, broker: BrokerUnderLoad, due_ms: int, messages: int) -> Slice:
        """Send messages that are due within a second."""
        dues_ms = list(range(due_ms, due_ms + _SECOND_MS))
        sent = await send_timers(
            broker,
            TOPIC,
            dues_ms,
            self._folder / "burst",
            messages=messages,
            first_serial=self._serial,
        )
        self._serial += sent.calls + sent.first_calls
        return sent

    async def _send_others(self, broker: BrokerUnderLoad, count: int) -> Figures:
        seconds = min(count / _DELIVERED_PER_S_MAX, self._seconds)
        return await self._others.load(broker, RATE, _BEFORE_MS / 1000 + seconds)

    def _delivery(
        self, broker: BrokerUnderLoad, before: int, messages: int, due_ms: int
    ) -> tuple[float, float]:
        """See messages delivered; how late the first was, and the seconds until the last."""
        pause = threading.Event()
        first_ms: float | None = None
        while True:
            came, now_ms = sum(broker.ends(TOPIC)) - before, self._clock.now_ms()
            if first_ms is None and came:
                first_ms = now_ms
            if came >= messages and first_ms is not None:
                return first_ms - due_ms, (now_ms - due_ms) / 1000
            if now_ms > due_ms + _DELIVERY_TIMEOUT_MS:
                raise LoadError(f"{broker.server} delivered {came} of {messages} messages")
            pause.wait(_POLL_S)


def main() -> None:
    """Measure, print the table and keep the results."""
    chosen = options(
        "Compare the delivery of many messages at once.",
        "timer_burst",
        rounds=1,
        seconds=10,
        java_warm_up_seconds=1,
        messages=1_000_000,
    )
    messages = SMOKE_MESSAGES if chosen.smoke else chosen.messages
    seconds = SMOKE.seconds if chosen.smoke else chosen.seconds
    ask(
        chosen,
        lambda folder: TimerBurst(folder, messages=messages, seconds=seconds),
        flushes=(ASYNC,),
        columns=COLUMNS,
        official_settings=OFFICIAL_SETTINGS,
        warm_up_seconds=0.2,
    )


if __name__ == "__main__":
    main()
