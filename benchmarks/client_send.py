"""What does a send cost our clients, and what does it cost RocketMQ's?

    python -m benchmarks.client_send [--rounds N] [--seconds S] [--no-java] [--no-pypi] [--smoke]

Every slice fails unless the broker holds as many messages more as the client says. A slice of
one-way sends, which promise nothing, ends when the last has arrived, and tells how many did.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

from benchmarks import client_peers
from benchmarks.brokers import BrokerUnderLoad, StoredError
from benchmarks.client_peers import LoadingClient
from benchmarks.client_rounds import Figures, ask, options, topic_of
from benchmarks.plans import Plan
from tests.waiting import wait_until

NAME: Final = "benchmark_client_sends"
_ARRIVAL_TIMEOUT_S: Final = 120
_SILENCE_S: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Sends:
    """How a client sends, and what."""

    mode: str
    body_bytes: int
    at_once: int = 1


def _by_name() -> dict[str, Sends]:
    workloads: dict[str, Sends] = {}
    for body_bytes, size in ((128, "128 B"), (1024, "1 KiB")):
        workloads[f"one at a time, {size}"] = Sends(mode="one", body_bytes=body_bytes)
        workloads[f"64 at a time, {size}"] = Sends(
            mode="concurrent", body_bytes=body_bytes, at_once=64
        )
        workloads[f"batches of 32, {size}"] = Sends(mode="batch", body_bytes=body_bytes, at_once=32)
        workloads[f"one-way, {size}"] = Sends(mode="oneway", body_bytes=body_bytes)
    return workloads


class SendCost:
    """Has clients send."""

    official_settings: Final[dict[str, str]] = {}

    def __init__(self, _: Plan) -> None:
        self._sends = _by_name()
        self.workloads = tuple(self._sends)

    def topics(self) -> tuple[str, ...]:
        """The one topic."""
        return (NAME,)

    def prepare(self, broker: BrokerUnderLoad) -> None:
        """Nothing has to be there before."""

    def can(self, client: LoadingClient, _: BrokerUnderLoad, workload: str, /) -> bool:
        """Whether it has such sends: PyPI's client has neither batches nor one-way sends."""
        return client.name != client_peers.PYPI or self._sends[workload].mode in {
            "one",
            "concurrent",
        }

    def load(
        self, client: LoadingClient, broker: BrokerUnderLoad, workload: str, seconds: float
    ) -> Figures:
        """Send for so long, and see what arrived."""
        sends, topic = self._sends[workload], topic_of(broker, NAME)
        # One message goes before the measured ones.
        before, cpu_s = sum(broker.ends(topic)) + 1, client.cpu_seconds()
        shown = client.send(sends.mode, topic, sends.body_bytes, sends.at_once, seconds)
        seconds, messages = shown.seconds, shown.messages
        if sends.mode == "oneway":
            # A client keeps what the broker is too slow for, and says that it was sent.
            more_s, messages = _arrive(broker, topic, before, messages)
            seconds += more_s
        else:
            broker.wait_stored(topic, before + messages)
        cpu_s = client.cpu_seconds() - cpu_s
        return {
            "messages": messages,
            "arrived": messages / shown.messages,
            "messages_per_s": messages / seconds,
            "cpu_us": cpu_s * 1e6 / messages,
            "cores": cpu_s / seconds,
        }


def _arrive(broker: BrokerUnderLoad, topic: str, before: int, messages: int) -> tuple[float, int]:
    """Wait for one-way sends; the seconds until the last one arrived, and how many did.

    A broker that is too busy drops some: they are not waited for any more when none has come for
    a while.
    """
    begun_s = last_s = time.monotonic()
    arrived = 0

    def ended() -> bool:
        nonlocal arrived, last_s
        now_s, seen = time.monotonic(), sum(broker.ends(topic)) - before
        if seen > arrived:
            arrived, last_s = seen, now_s
        return arrived >= messages or now_s > last_s + _SILENCE_S

    wait_until(ended, timeout_s=_ARRIVAL_TIMEOUT_S, what=f"{messages} one-way sends arrived")
    if not arrived:
        raise StoredError(f"{broker.server}: of {messages} one-way sends none arrived")
    return last_s - begun_s, arrived


def main() -> None:
    """Measure, print the table and keep the results."""
    chosen = options("Compare what sends cost clients.", "client_send", rounds=5, seconds=2.0)
    ask(chosen, SendCost)


if __name__ == "__main__":
    main()
