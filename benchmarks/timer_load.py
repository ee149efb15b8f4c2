"""Messages with due times: benchmarks send them, and see how late each comes to a waiting consumer.

The body of a message begins with its due time. All brokers get the same requests, from the same
programs.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from benchmarks.broker_requests import pull_request, timer_request
from benchmarks.broker_start import Client
from benchmarks.brokers import QUEUES, BrokerUnderLoad
from benchmarks.load import LoadError, Slice, Workload, load, write_frames
from orbitmq.protocol.codes import ResponseCode
from tests.interop import wire
from tests.waiting import until_reached

# Options of the official broker, where the interop suite's differ from RocketMQ's own.
OFFICIAL_SETTINGS: Final = {"timerWheelEnable": "true"}
BODY_BYTES: Final = 128
SENDING: Final = Workload(name="timers", connections=8, in_flight=64)
# The load generator takes 65,536 frames; they are sent in turn.
FRAMES_MAX: Final = 50_000
PULLED: Final = 32
_SEND_SECONDS_MAX: Final = 500
_SETTLE_TIMEOUT_S: Final = 300
# Where a record has its size, the time it was stored, and its body, with IPv4 hosts.
_SIZE: Final = struct.Struct(">i")
_STORED: Final = struct.Struct(">q")
_STORED_AT: Final = 56
_BODY_AT: Final = 88
_DUE_BYTES: Final = 8


async def send_timers(
    broker: BrokerUnderLoad,
    topic: str,
    dues_ms: Sequence[int],
    file: Path,
    *,
    messages: int | None = None,
    first_serial: int = 0,
) -> Slice:
    """Send messages that are due at these times, in turn, as many as there are times or `messages`.

    Each connection sends one more before.
    """
    frames = write_frames(
        [
            timer_request(topic, number % QUEUES, due_ms, BODY_BYTES)
            for number, due_ms in enumerate(dues_ms[:FRAMES_MAX])
        ],
        file,
    )
    return await load(
        port=broker.port,
        server_pid=broker.pid,
        workload=SENDING,
        frames=frames,
        seconds=_SEND_SECONDS_MAX,
        calls_max=len(dues_ms) if messages is None else messages,
        first_serial=first_serial,
    )


async def wait_taken_in(broker: BrokerUnderLoad) -> None:
    """Wait until the broker has put every timer that it stored into its wheel."""
    await until_reached(
        lambda: int(_runtime(broker)["timerOffsetBehind"]) <= 0,
        timeout_s=_SETTLE_TIMEOUT_S,
        what="all timers in the wheel",
    )


def _runtime(broker: BrokerUnderLoad) -> dict[str, str]:
    table: dict[str, str] = wire.ask(broker.address, wire.GET_RUNTIME).body["table"]
    return table


# --- what comes ---------------------------------------------------------------------------------


class SentTooLateError(LoadError):
    """Most messages were due before the last was sent."""


@dataclass(slots=True)
class Arrivals:
    """When messages were due, stored in their queues, and received."""

    dues_ms: list[int] = field(default_factory=list)
    stored_ms: list[int] = field(default_factory=list)
    received_ms: list[float] = field(default_factory=list)

    def lateness(self, sent_ms: int) -> dict[str, float]:
        """How late those came that were due after `sent_ms`, when all had been sent.

        Raises LoadError if one came early, or SentTooLateError if few are left.
        """
        own = [number for number, due_ms in enumerate(self.dues_ms) if due_ms >= sent_ms]
        if len(own) < len(self.dues_ms) / 2:
            raise SentTooLateError(f"only {len(own)} messages were due after the last was sent")
        received = sorted(self.received_ms[number] - self.dues_ms[number] for number in own)
        stored = sorted(self.stored_ms[number] - self.dues_ms[number] for number in own)
        if stored[0] < 0:
            raise LoadError(f"a message came {-stored[0]} ms early")
        return {
            "messages_in_time": len(own),
            "late_p50_ms": _share(received, 0.5),
            "late_p99_ms": _share(received, 0.99),
            "late_max_ms": received[-1],
            "stored_late_p50_ms": _share(stored, 0.5),
            "stored_late_p99_ms": _share(stored, 0.99),
            "stored_late_max_ms": stored[-1],
        }


def _share(ordered: Sequence[float], share: float) -> float:
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


class WaitingConsumers:
    """A consumer of each queue of a topic, with one pull waiting at the broker."""

    def __init__(self, broker: BrokerUnderLoad, topic: str) -> None:
        self._broker = broker
        self._topic = topic
        self._tasks: list[asyncio.Task[None]] = []
        self._wanted = 0
        self._all_came = asyncio.Event()
        self.arrivals = Arrivals()

    async def __aenter__(self) -> WaitingConsumers:
        ends = await asyncio.to_thread(self._broker.ends, self._topic)
        self._tasks = [
            asyncio.create_task(self._consume(queue_id, end)) for queue_id, end in enumerate(ends)
        ]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def wait(self, messages: int, *, timeout_s: float) -> None:
        """Wait until so many have come; raises LoadError if they do not."""
        self._wanted = messages
        self._look()
        came = asyncio.create_task(self._all_came.wait())
        done, _ = await asyncio.wait(
            [came, *self._tasks], timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
        )
        came.cancel()
        for task in done - {came}:
            task.result()
        if not self._all_came.is_set():
            raise LoadError(
                f"{self._broker.server}: {len(self.arrivals.dues_ms)} of {messages} messages came"
            )

    def _look(self) -> None:
        if self._wanted and len(self.arrivals.dues_ms) >= self._wanted:
            self._all_came.set()

    async def _consume(self, queue_id: int, offset: int) -> None:
        client = Client(*await asyncio.open_connection("127.0.0.1", self._broker.port))
        try:
            while True:
                reply = await client.call(pull_request(self._topic, queue_id, offset, PULLED))
                if reply.code == ResponseCode.SUCCESS:
                    offset += self._take(reply.body)
                    self._look()
        finally:
            client.close()

    def _take(self, records: bytes) -> int:
        now_ms = time.time() * 1000  # noqa: TID251  # with fractions
        arrivals, at, count = self.arrivals, 0, 0
        while at < len(records):
            body_at = at + _BODY_AT
            arrivals.dues_ms.append(int.from_bytes(records[body_at : body_at + _DUE_BYTES]))
            arrivals.stored_ms.append(_STORED.unpack_from(records, at + _STORED_AT)[0])
            arrivals.received_ms.append(now_ms)
            at += _SIZE.unpack_from(records, at)[0]
            count += 1
        return count
