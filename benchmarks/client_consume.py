"""What does consuming cost our clients, and what does it cost RocketMQ's?

    python -m benchmarks.client_consume [--rounds N] [--seconds S] [--no-java] [--no-pypi] [--smoke]

Topics are filled first. In each slice a push consumer of a new group reads one from its start, with
a listener that only counts, 20 calls of it at a time at most, as is usual; the first messages
are not measured, and where a topic is read several times in a slice, only the last counts.
"""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from pathlib import Path
from typing import Final

import msgspec

from benchmarks import client_peers
from benchmarks.broker_requests import send_request
from benchmarks.brokers import QUEUES, BrokerUnderLoad
from benchmarks.client_peers import LoadingClient
from benchmarks.client_rounds import Figures, ask, options, topic_of
from benchmarks.load import Workload, load, write_frames
from benchmarks.plans import Plan
from orbitmq.protocol.codes import RequestCode
from tests.interop import wire

BODIES: Final = {"push, 128 B": 128, "push, 1 KiB": 1024}
WARM_UP: Final = 5_000
MESSAGES: Final = 60_000
SMOKE_MESSAGES: Final = 500
# PyPI's client acknowledges each message by a call of its own, and takes a second for hundreds.
PYPI_WARM_UP: Final = 200
PYPI_MESSAGES: Final = 2_000
_SECONDS_MAX: Final = 120
_FILLING: Final = Workload(name="filling", connections=QUEUES, in_flight=64)


class ConsumeCost:
    """Has clients consume."""

    official_settings: Final[dict[str, str]] = {}

    def __init__(self, plan: Plan) -> None:
        is_short = plan.seconds < 1
        self._warm_up = SMOKE_MESSAGES if is_short else WARM_UP
        self._messages = SMOKE_MESSAGES if is_short else MESSAGES
        self.workloads = tuple(BODIES)
        self._groups = itertools.count(1)
        self._brokers: list[BrokerUnderLoad] = []

    def topics(self) -> tuple[str, ...]:
        """A topic for each size."""
        return tuple(_name(body_bytes) for body_bytes in BODIES.values())

    def prepare(self, broker: BrokerUnderLoad) -> None:
        """Fill the topics, a little more than a slice reads."""
        self._brokers.append(broker)
        for body_bytes in BODIES.values():
            topic = topic_of(broker, _name(body_bytes))
            wanted = self._warm_up + self._messages
            asyncio.run(_fill(broker, topic, body_bytes, wanted))

    def can(self, client: LoadingClient, broker: BrokerUnderLoad, _: str, /) -> bool:
        """Whether it is served: PyPI's client needs POP, which our broker has not."""
        return client.name != client_peers.PYPI or broker.is_official

    def load(
        self, client: LoadingClient, broker: BrokerUnderLoad, workload: str, seconds: float, /
    ) -> Figures:
        """Consume a topic repeatedly for this many seconds; the last time counts."""
        left_s, is_slow = seconds, client.name == client_peers.PYPI
        while True:
            group = f"benchmark-{next(self._groups)}"
            if is_slow:
                self._make_group(group)
            shown = client.consume(
                topic_of(broker, _name(BODIES[workload])),
                group,
                warm_up=PYPI_WARM_UP if is_slow else self._warm_up,
                messages=PYPI_MESSAGES if is_slow else self._messages,
                seconds_max=_SECONDS_MAX,
            )
            left_s -= shown.seconds
            if left_s <= 0:
                break
        return {
            "messages": shown.messages,
            "messages_per_s": shown.messages / shown.seconds,
            "cpu_us": shown.cpu_seconds * 1e6 / shown.messages,
            "cores": shown.cpu_seconds / shown.seconds,
        }

    def _make_group(self, group: str) -> None:
        """A proxy asks any broker about a group, and serves nobody of one that is not there."""
        body = msgspec.json.encode({"groupName": group})
        for broker in self._brokers:
            answer = wire.ask(
                broker.address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body
            )
            assert answer.code == wire.SUCCESS, answer


def _name(body_bytes: int) -> str:
    return f"benchmark_client_consuming_{body_bytes}"


async def _fill(broker: BrokerUnderLoad, topic: str, body_bytes: int, messages: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        requests = [send_request(topic, queue_id, body_bytes) for queue_id in range(QUEUES)]
        frames = write_frames(requests, Path(folder) / "frames")
        stored = 0
        while stored < messages:
            shown = await load(
                port=broker.port,
                server_pid=broker.pid,
                workload=_FILLING,
                frames=frames,
                seconds=0.5,
                first_serial=stored,
            )
            stored += shown.calls + shown.first_calls
        broker.wait_stored(topic, stored)


def main() -> None:
    """Measure, print the table and keep the results."""
    chosen = options(
        "Compare what consuming costs clients.", "client_consume", rounds=5, seconds=1.0
    )
    ask(chosen, ConsumeCost)


if __name__ == "__main__":
    main()
