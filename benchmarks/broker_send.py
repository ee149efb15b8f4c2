"""What does a send cost our broker, and what does it cost the official one?

    python -m benchmarks.broker_send [--rounds N] [--seconds S] [--no-java] [--smoke]

Every slice ends once readers see what was sent, and fails unless the queues have grown by exactly
as many messages as were answered. The CPU that this takes is part of a send.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.broker_requests import batch_request, send_request
from benchmarks.broker_rounds import Column, Figures, ask, options
from benchmarks.brokers import ASYNC, QUEUES, SYNC, BrokerUnderLoad
from benchmarks.load import Workload, load, write_frames
from orbitmq.protocol.command import Command
from orbitmq.protocol.frame import Encoding

TOPIC: Final = "benchmark_sends"
BATCH: Final = 32
COLUMNS: Final = (
    Column(figure="messages_per_s", title="messages/s", is_compared=True),
    Column(figure="cpu_us", title="broker CPU µs/message", digits=1, is_compared=True),
    Column(figure="p50_us", title="p50 µs"),
    Column(figure="p99_us", title="p99 µs"),
    Column(figure="disk_bytes", title="bytes to disk/message"),
    Column(figure="broker_cores", title="cores: broker", digits=2),
    Column(figure="generator_cores", title="load", digits=2),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sends:
    """A workload, and the size of the bodies sent."""

    workload: Workload
    body_bytes: int


def _sends(name: str, connections: int, in_flight: int, body_bytes: int, **rest: object) -> Sends:
    size = "1 KiB" if body_bytes == 1024 else f"{body_bytes} B"
    workload = Workload(
        name=f"{name}, {size}",
        connections=connections,
        in_flight=in_flight,
        **rest,  # type: ignore[arg-type]  # fields of a workload
    )
    return Sends(workload=workload, body_bytes=body_bytes)


SENDS: Final = (
    _sends("1 sync producer", 1, 1, 128),
    _sends("64 sync producers", 64, 1, 128),
    _sends("64 sync producers", 64, 1, 1024),
    _sends("pipelined 8x64", 8, 64, 128),
    _sends("pipelined 8x64", 8, 64, 1024),
    _sends("pipelined 8x64, binary header", 8, 64, 128, encoding=Encoding.BINARY),
    _sends(f"8 sync producers, batch of {BATCH}", 8, 1, 128, messages=BATCH),
    _sends(f"8 sync producers, batch of {BATCH}", 8, 1, 1024, messages=BATCH),
)


class SendCost:
    """Loads brokers with sends."""

    topics = (TOPIC,)
    workloads = tuple(sends.workload.name for sends in SENDS)

    def __init__(self, folder: Path) -> None:
        self._sends = {sends.workload.name: sends for sends in SENDS}
        self._frames = {
            sends.workload.name: write_frames(_requests(sends), folder / f"frames-{number}")
            for number, sends in enumerate(SENDS)
        }
        self._serial = 0

    async def prepare(self, broker: BrokerUnderLoad) -> None:
        """Nothing has to be there before."""

    async def load(self, broker: BrokerUnderLoad, workload: str, seconds: float) -> Figures:
        """Send for so long, and wait until everything sent can be read."""
        sends = self._sends[workload].workload
        per_call = sends.messages
        before = sum(broker.ends(TOPIC))
        shown = await load(
            port=broker.port,
            server_pid=broker.pid,
            workload=sends,
            frames=self._frames[workload],
            seconds=seconds,
            first_serial=self._serial,
            settle=lambda calls: broker.wait_stored(TOPIC, before + calls * per_call),
        )
        self._serial += (shown.calls + shown.first_calls) * per_call
        messages = shown.calls * per_call
        return {
            "messages": messages,
            "messages_per_s": messages / shown.seconds,
            "cpu_us": shown.server_cpu_seconds * 1e6 / messages,
            "disk_bytes": shown.server_written_bytes / messages,
            "p50_us": shown.latency.p50_us,
            "p99_us": shown.latency.p99_us,
            "broker_cores": shown.server_cpu_seconds / shown.seconds,
            "generator_cores": shown.generator_cpu_seconds / shown.seconds,
        }


def _requests(sends: Sends) -> list[Command]:
    if sends.workload.messages > 1:
        return [
            batch_request(TOPIC, queue_id, sends.body_bytes, sends.workload.messages)
            for queue_id in range(QUEUES)
        ]
    return [
        send_request(TOPIC, queue_id, sends.body_bytes, encoding=sends.workload.encoding)
        for queue_id in range(QUEUES)
    ]


def main() -> None:
    """Measure, print the table and keep the results."""
    chosen = options("Compare the cost of sends.", "broker_send", rounds=5, seconds=1.5)
    ask(chosen, SendCost, flushes=(ASYNC, SYNC), columns=COLUMNS)


if __name__ == "__main__":
    main()
