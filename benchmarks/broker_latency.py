"""How long does a message take to a waiting consumer, and how long does its send take?

    python -m benchmarks.broker_latency [--rounds N] [--seconds S] [--no-java] [--smoke]

Eight producers send at fixed times, whatever was answered so far; a consumer of each queue has one
pull waiting at the broker. Every message must arrive once and in order.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from benchmarks.broker_requests import pull_request, send_request
from benchmarks.broker_rounds import Column, Figures, ask, options
from benchmarks.brokers import ASYNC, QUEUES, SYNC, BrokerUnderLoad
from benchmarks.load import HERE, Latencies, compiled, run, write_frames

TOPIC: Final = "benchmark_latency"
PROGRAM: Final = HERE / "delivery_generator.c"
BODY_BYTES: Final = 128
PULLED: Final = 32
RATES: Final = {f"{rate:,} messages/s": rate for rate in (500, 2_000, 8_000)}
COLUMNS: Final = (
    Column(figure="delivery_p50_us", title="delivery p50 µs", is_compared=True),
    Column(figure="delivery_p99_us", title="p99", is_compared=True),
    Column(figure="delivery_p999_us", title="p99.9"),
    Column(figure="send_p50_us", title="send p50 µs", is_compared=True),
    Column(figure="send_p99_us", title="p99", is_compared=True),
    Column(figure="send_p999_us", title="p99.9"),
    Column(figure="cpu_us", title="broker CPU µs/message", digits=1, is_compared=True),
    Column(figure="disk_bytes", title="bytes to disk/message"),
)


class _Printed(msgspec.Struct):
    """What the program prints at its end."""

    messages: int
    seconds: float
    held_again: int
    generator_cpu_seconds: float
    send: Latencies
    delivery: Latencies


class DeliveryTime:
    """Sends messages through brokers to consumers that wait for them."""

    topics = (TOPIC,)
    workloads = tuple(RATES)

    def __init__(self, folder: Path) -> None:
        queues = range(QUEUES)
        self._sends = write_frames(
            [send_request(TOPIC, queue_id, BODY_BYTES) for queue_id in queues], folder / "sends"
        )
        self._pulls = write_frames(
            [pull_request(TOPIC, queue_id, None, PULLED) for queue_id in queues], folder / "pulls"
        )
        self._serial = 0

    async def prepare(self, broker: BrokerUnderLoad) -> None:
        """Nothing has to be there before."""

    async def load(self, broker: BrokerUnderLoad, workload: str, seconds: float) -> Figures:
        """Send at a rate, for so long."""
        ends = broker.ends(TOPIC)

        def settled(printed: bytes) -> None:
            sent = msgspec.json.decode(printed, type=_Printed).messages
            broker.wait_stored(TOPIC, sum(ends) + sent)

        made = await run(
            [
                compiled(PROGRAM),
                *(broker.port, RATES[workload], seconds, self._sends, self._pulls),
                *(",".join(map(str, ends)), self._serial),
            ],
            server_pid=broker.pid,
            seconds=seconds,
            what=workload,
            settle=settled,
        )
        shown = msgspec.json.decode(made.printed, type=_Printed)
        self._serial += shown.messages
        return {
            "messages": shown.messages,
            "messages_per_s": shown.messages / shown.seconds,
            "cpu_us": made.server_cpu_seconds * 1e6 / shown.messages,
            "disk_bytes": made.server_written_bytes / shown.messages,
            **{
                f"delivery_{name}": us
                for name, us in msgspec.structs.asdict(shown.delivery).items()
            },
            **{f"send_{name}": us for name, us in msgspec.structs.asdict(shown.send).items()},
            "generator_cores": shown.generator_cpu_seconds / shown.seconds,
        }


def main() -> None:
    """Measure, print the table and keep the results."""
    chosen = options("Compare the time that messages take.", "broker_latency", rounds=5, seconds=3)
    ask(chosen, DeliveryTime, flushes=(ASYNC, SYNC), columns=COLUMNS)


if __name__ == "__main__":
    main()
