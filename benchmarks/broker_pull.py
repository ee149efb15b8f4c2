"""What does reading cost our broker, and what does it cost the official one?

    python -m benchmarks.broker_pull [--rounds N] [--seconds S] [--no-java] [--smoke]

Queues are filled first. Then consumers catch up from their start, 32 messages a pull, each pull
sent when the one before is answered; at the end they start again. Every reply must hold 32 records.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.broker_requests import pull_request, send_request
from benchmarks.broker_rounds import Column, Figures, ask, options
from benchmarks.brokers import ASYNC, QUEUES, BrokerUnderLoad
from benchmarks.load import Workload, load, write_frames

PULLED: Final = 32
MESSAGES_A_QUEUE: Final = 640 * PULLED
SMOKE_MESSAGES_A_QUEUE: Final = 10 * PULLED
FILL_SECONDS: Final = 120
FILLING: Final = Workload(name="filling", connections=QUEUES, in_flight=64)
COLUMNS: Final = (
    Column(figure="messages_per_s", title="messages/s", is_compared=True),
    Column(figure="cpu_us", title="broker CPU µs/message", digits=2, is_compared=True),
    Column(figure="mib_per_s", title="MiB/s"),
    Column(figure="p50_us", title="p50 µs/pull"),
    Column(figure="p99_us", title="p99 µs/pull"),
    Column(figure="broker_cores", title="cores: broker", digits=2),
    Column(figure="generator_cores", title="load", digits=2),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulls:
    """A workload, and the size of the bodies read."""

    workload: Workload
    body_bytes: int

    @property
    def topic(self) -> str:
        """Where such bodies are."""
        return f"benchmark_pulls_{self.body_bytes}"


def _pulls(consumers: int, body_bytes: int) -> Pulls:
    size = "1 KiB" if body_bytes == 1024 else f"{body_bytes} B"
    many = "s" if consumers > 1 else ""
    return Pulls(
        workload=Workload(
            name=f"{consumers} consumer{many}, {consumers} queue{many}, {size}",
            connections=consumers,
            in_flight=1,
            messages=PULLED,
        ),
        body_bytes=body_bytes,
    )


PULLS: Final = (_pulls(1, 128), _pulls(QUEUES, 128), _pulls(1, 1024), _pulls(QUEUES, 1024))


class PullCost:
    """Fills queues of brokers, then loads them with pulls."""

    topics = tuple(dict.fromkeys(pulls.topic for pulls in PULLS))
    workloads = tuple(pulls.workload.name for pulls in PULLS)

    def __init__(self, folder: Path, *, messages_a_queue: int = MESSAGES_A_QUEUE) -> None:
        self._messages_a_queue = messages_a_queue
        self._pulls = {pulls.workload.name: pulls for pulls in PULLS}
        self._frames = {
            pulls.workload.name: write_frames(
                [
                    pull_request(pulls.topic, queue_id, offset, PULLED)
                    for offset in range(0, messages_a_queue, PULLED)
                    for queue_id in range(pulls.workload.connections)
                ],
                folder / f"pulls-{number}",
            )
            for number, pulls in enumerate(PULLS)
        }
        self._sends = {
            pulls.topic: write_frames(
                [send_request(pulls.topic, queue, pulls.body_bytes) for queue in range(QUEUES)],
                folder / f"sends-{pulls.body_bytes}",
            )
            for pulls in PULLS
        }

    async def prepare(self, broker: BrokerUnderLoad) -> None:
        """Fill the queues."""
        for topic, frames in self._sends.items():
            await load(
                port=broker.port,
                server_pid=broker.pid,
                workload=FILLING,
                frames=frames,
                seconds=FILL_SECONDS,
                calls_max=self._messages_a_queue * QUEUES,
                settle=partial(broker.wait_stored, topic),
            )

    async def load(self, broker: BrokerUnderLoad, workload: str, seconds: float) -> Figures:
        """Catch up again and again, for so long."""
        shown = await load(
            port=broker.port,
            server_pid=broker.pid,
            workload=self._pulls[workload].workload,
            frames=self._frames[workload],
            seconds=seconds,
            records=PULLED,
        )
        messages = shown.calls * PULLED
        return {
            "messages": messages,
            "messages_per_s": messages / shown.seconds,
            "cpu_us": shown.server_cpu_seconds * 1e6 / messages,
            "mib_per_s": shown.calls * shown.body_bytes / shown.seconds / (1024 * 1024),
            "disk_bytes": shown.server_written_bytes / messages,
            "p50_us": shown.latency.p50_us,
            "p99_us": shown.latency.p99_us,
            "broker_cores": shown.server_cpu_seconds / shown.seconds,
            "generator_cores": shown.generator_cpu_seconds / shown.seconds,
        }


def main() -> None:
    """Measure, print the table and keep the results."""
    chosen = options("Compare the cost of pulls.", "broker_pull", rounds=5, seconds=1.5)
    messages = SMOKE_MESSAGES_A_QUEUE if chosen.smoke else MESSAGES_A_QUEUE
    ask(
        chosen,
        lambda folder: PullCost(folder, messages_a_queue=messages),
        flushes=(ASYNC,),
        columns=COLUMNS,
    )


if __name__ == "__main__":
    main()
