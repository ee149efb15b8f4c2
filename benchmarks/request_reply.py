"""How many round trips of request and reply pass through a broker, ours and RocketMQ's?

    python -m benchmarks.request_reply [--rounds N] [--seconds S] [--no-java] [--smoke]

One process requests and replies, 128 bytes each way. A round trip is a send, a delivery to the
replier, the reply to the broker and its push to the requester.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import psutil

from benchmarks import client_peers
from benchmarks.brokers import OURS, BrokerUnderLoad
from benchmarks.client_peers import LoadingClient
from benchmarks.client_rounds import Figures, Measured, ask, options, topic_of
from benchmarks.plans import WARM_UP, Plan, markdown_table
from benchmarks.rounds import spread

NAME: Final = "benchmark_requests"
_AT_ONCE: Final = {"one at a time": 1, "32 at a time": 32}


class RoundTrips:
    """Has clients send requests and reply to them."""

    # Each broker is a cluster, with a reply topic of its own: Java's clients send replies to any
    # broker of a cluster.
    official_settings: Final[dict[str, str]] = {"brokerClusterName": "official"}

    def __init__(self, _: Plan) -> None:
        self.workloads = tuple(_AT_ONCE)

    def topics(self) -> tuple[str, ...]:
        """The one topic."""
        return (NAME,)

    def prepare(self, broker: BrokerUnderLoad) -> None:
        """Nothing has to be there before."""

    def can(self, client: LoadingClient, _: BrokerUnderLoad, workload: str, /) -> bool:
        """Whether it has requests: PyPI's client has none."""
        return client.name != client_peers.PYPI and workload in self.workloads

    def load(
        self, client: LoadingClient, broker: BrokerUnderLoad, workload: str, seconds: float
    ) -> Figures:
        """Send requests for so long; figures count round trips, and the broker's time too."""
        topic = topic_of(broker, NAME)
        broker_before_s, client_before_s = _cpu_seconds(broker.pid), client.cpu_seconds()
        # One group for all, which has done with what was sent before; they take turns.
        shown = client.request(
            topic, f"{topic}_repliers", at_once=_AT_ONCE[workload], seconds=seconds
        )
        client_s = client.cpu_seconds() - client_before_s
        broker_s = _cpu_seconds(broker.pid) - broker_before_s
        return {
            "messages": shown.messages,
            "messages_per_s": shown.messages / shown.seconds,
            "cpu_us": client_s * 1e6 / shown.messages,
            "broker_cpu_us": broker_s * 1e6 / shown.messages,
            "cores": client_s / shown.seconds,
        }


def _cpu_seconds(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


def beside_official(measured: Sequence[Measured]) -> str:
    """Our broker beside the official one, as ratios within a round: least / median / greatest."""
    slices = {
        (entry.workload, entry.client, entry.round, entry.broker == OURS): entry.figures
        for entry in measured
        if entry.round != WARM_UP
    }
    lines = list[list[str]]()
    for workload, client in dict.fromkeys(key[:2] for key in slices):
        pairs = [
            (figures, slices[*key[:3], False])
            for key, figures in slices.items()
            if key[:2] == (workload, client) and key[3] and (*key[:3], False) in slices
        ]
        if pairs:
            ratios = [
                spread([ours[name] / theirs[name] for ours, theirs in pairs])
                for name in ("messages_per_s", "broker_cpu_us")
            ]
            cells = [" / ".join(f"{value:.2f}" for value in ratio) for ratio in ratios]
            lines.append([workload, client, *cells])
    heads = ["workload", "client", "round trips/s, ours : official", "broker CPU, ours : official"]
    return markdown_table(heads, lines) if lines else ""


def main() -> None:
    """Measure, print the tables and keep the results."""
    chosen = options("Compare round trips of requests.", "request_reply", rounds=5, seconds=2.0)
    measured = ask(chosen, RoundTrips)
    print(f"\n{beside_official(measured)}")


if __name__ == "__main__":
    main()
