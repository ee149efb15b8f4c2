"""How late do delayed messages come, and what do they cost a broker, ours and RocketMQ's?

    python -m benchmarks.delayed_messages [--messages N] [--seconds S] [--no-java] [--smoke]

All messages are sent at once, due at times that are spread over the slice. A consumer of each queue
has one pull waiting at the broker. Every message must come, and none before its time.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Final

import psutil

from benchmarks.broker_rounds import Column, Figures, ask, options
from benchmarks.brokers import ASYNC, SYNC, BrokerUnderLoad
from benchmarks.load import LoadError, cpu_seconds
from benchmarks.timer_load import (
    OFFICIAL_SETTINGS,
    SentTooLateError,
    WaitingConsumers,
    send_timers,
)
from orbitmq.clock import SystemClock

TOPIC: Final = "benchmark_delayed"
# Time to send them all before the first is due: to write the requests, and to send them. What is
# due sooner is not counted.
_LEAD_MS: Final = 2_000
_LEAD_PER_1000_MS: Final = 140
_TIMEOUT_S: Final = 60
COLUMNS: Final = (
    Column(figure="late_p50_ms", title="late p50 ms", digits=1, is_compared=True),
    Column(figure="late_p99_ms", title="late p99 ms", digits=1, is_compared=True),
    Column(figure="late_max_ms", title="late max ms", digits=1, is_compared=True),
    Column(figure="stored_late_p99_ms", title="in its queue late p99 ms"),
    Column(figure="send_cpu_us", title="broker CPU µs/message: send", digits=1),
    Column(figure="delivery_cpu_us", title="delivery", digits=1),
    Column(figure="cpu_us", title="send and delivery", digits=1, is_compared=True),
    Column(figure="sent_per_s", title="sent/s"),
    Column(figure="messages_in_time", title="messages counted"),
)


class DelayedMessages:
    """Sends delayed messages, and waits for them."""

    topics = (TOPIC,)

    def __init__(self, folder: Path, *, messages: int, seconds: float) -> None:
        self._folder = folder
        self._per_second = messages / seconds
        self.workloads = (f"{messages:,} messages due within {seconds:g} s",)
        self._serial = 0
        self._random = random.Random(1)  # due times, no secret
        self._clock = SystemClock()

    async def prepare(self, broker: BrokerUnderLoad) -> None:
        """Nothing has to be there before."""

    async def load(self, broker: BrokerUnderLoad, _: str, seconds: float) -> Figures:
        """Send messages that are due within this many seconds, and see them come.

        Again, with more time to send them, if that took too long.
        """
        messages = max(int(self._per_second * seconds), 8)
        for lead in (1, 2, 4, 8):
            lead_ms = _LEAD_MS + messages * _LEAD_PER_1000_MS // 1000
            try:
                return await self._load(broker, messages, seconds, lead * lead_ms)
            except SentTooLateError as late:
                print(f"again: {broker.server}: {late}", flush=True)
        raise LoadError(f"{broker.server} is too slow")

    async def _load(
        self, broker: BrokerUnderLoad, messages: int, seconds: float, lead_ms: int
    ) -> Figures:
        process = psutil.Process(broker.pid)
        async with WaitingConsumers(broker, TOPIC) as consumers:
            first_ms = self._clock.now_ms() + lead_ms
            dues_ms = [
                first_ms + self._random.randrange(int(seconds * 1000)) for _ in range(messages)
            ]
            sent = await send_timers(
                broker, TOPIC, dues_ms, self._folder / "frames", first_serial=self._serial
            )
            sent_ms = self._clock.now_ms()
            messages = sent.calls + sent.first_calls
            self._serial += messages
            before_s = cpu_seconds(process)
            await consumers.wait(messages, timeout_s=seconds + _TIMEOUT_S)
            delivery_s = cpu_seconds(process) - before_s
            lateness = consumers.arrivals.lateness(sent_ms)
        return {
            "messages": messages,
            **lateness,
            "send_cpu_us": sent.server_cpu_seconds * 1e6 / messages,
            "delivery_cpu_us": delivery_s * 1e6 / messages,
            "cpu_us": (sent.server_cpu_seconds + delivery_s) * 1e6 / messages,
            "sent_per_s": sent.calls_per_second,
        }


def main() -> None:
    """Measure, print the table and keep the results."""
    chosen = options(
        "Compare how late delayed messages come.",
        "delayed_messages",
        rounds=1,
        seconds=60,
        java_warm_up_seconds=8,
        messages=100_000,
    )
    ask(
        chosen,
        lambda folder: DelayedMessages(folder, messages=chosen.messages, seconds=chosen.seconds),
        flushes=(ASYNC, SYNC),
        columns=COLUMNS,
        official_settings=OFFICIAL_SETTINGS,
        warm_up_seconds=1,
    )


if __name__ == "__main__":
    main()
