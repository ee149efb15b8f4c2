"""How benchmarks of clients measure and report: slices in shuffled rounds, ratios within a round.

All clients and brokers run at once, and one client loads one broker at a time. A ratio compares
ours with another client at the same broker and workload in the same round.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import random
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from benchmarks import brokers, client_peers
from benchmarks.broker_rounds import facts_of
from benchmarks.brokers import ASYNC, BrokerUnderLoad, StoredError
from benchmarks.client_peers import ClientError, LoadingClient
from benchmarks.grpc_proxy import MissingPeerError, running_proxy
from benchmarks.plans import (
    WARM_UP,
    Plan,
    keep_slices,
    markdown_table,
    plan_of,
    plan_options,
    stage_of,
)
from benchmarks.rounds import RESULTS, spread
from tests.interop import wire
from tests.interop.timeouts import REGISTER_TIMEOUT_S

_TRIES: Final = 3

Figures = Mapping[str, float]


class Question(Protocol):
    """What a benchmark asks of clients."""

    @property
    def workloads(self) -> Sequence[str]:
        """What clients do, by name."""

    @property
    def official_settings(self) -> Mapping[str, str]:
        """Options of the official broker."""

    def topics(self) -> Sequence[str]:
        """The topics that a broker needs for it."""

    def prepare(self, broker: BrokerUnderLoad) -> None:
        """Do what has to be done once, before the first slice."""

    def can(self, client: LoadingClient, broker: BrokerUnderLoad, workload: str, /) -> bool:
        """Whether a client can do this at all."""

    def load(
        self, client: LoadingClient, broker: BrokerUnderLoad, workload: str, seconds: float, /
    ) -> Figures:
        """Have a client do it for one slice."""


SMOKE: Final = Plan(rounds=1, seconds=0.05, warm_up_seconds=0, java_warm_up_seconds=0, seed=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One slice: which client, which task, which round, and the figures."""

    broker: str
    workload: str
    client: str
    round: int
    figures: Figures


def topic_of(broker: BrokerUnderLoad, name: str) -> str:
    """The topic of a name that is on one broker only."""
    return f"{name}_{'official' if broker.is_official else 'ours'}"


def measure(
    clients: Sequence[LoadingClient],
    under_load: Sequence[BrokerUnderLoad],
    question: Question,
    plan: Plan,
) -> list[Measured]:
    """Warm every client up, then let them load the brokers in turn."""
    order = random.Random(plan.seed)  # an order of slices, no secret
    measured: list[Measured] = []

    def slice_of(
        client: LoadingClient, broker: BrokerUnderLoad, workload: str, seconds: float, number: int
    ) -> None:
        if not question.can(client, broker, workload):
            return
        figures = _tried_again(lambda: question.load(client, broker, workload, seconds))
        measured.append(
            Measured(
                broker=broker.server,
                workload=workload,
                client=client.name,
                round=number,
                figures=figures,
            )
        )
        shown = ", ".join(f"{name} {value:,.2f}" for name, value in figures.items())
        print(
            f"{stage_of(number)}: {broker.server}: {workload}: {client.name}: {shown}", flush=True
        )

    for broker in under_load:
        question.prepare(broker)
    places = list(itertools.product(under_load, question.workloads))
    for client in clients:
        seconds = plan.java_warm_up_seconds if client.is_java else plan.warm_up_seconds
        for broker, workload in places if seconds else ():
            slice_of(client, broker, workload, seconds / len(places), WARM_UP)
    for round_number in range(1, plan.rounds + 1):
        for broker, workload in places:
            for client in order.sample(clients, len(clients)):
                slice_of(client, broker, workload, plan.seconds, round_number)
    return measured


def _tried_again(load: Callable[[], Figures]) -> Figures:
    """What a slice shows; one that failed, as on a loaded machine some do, is done again."""
    for _ in range(_TRIES - 1):
        try:
            return load()
        except (ClientError, StoredError) as failure:
            print(f"again, since it failed: {failure}", flush=True)
    return load()


def summary(measured: Sequence[Measured]) -> list[dict[str, Any]]:
    """One row per broker, workload and client: figures, and ours against each other client."""
    slices = {
        (entry.broker, entry.workload, entry.client, entry.round): entry.figures
        for entry in measured
        if entry.round != WARM_UP
    }
    rounds = sorted({number for *_, number in slices})
    rows: list[dict[str, Any]] = []
    for broker, workload, client in dict.fromkeys(key[:3] for key in slices):
        own = [slices[broker, workload, client, number] for number in rounds]
        others = {key[2] for key in slices if key[:2] == (broker, workload)}
        ratios: dict[str, Any] = {}
        for other in sorted(others - {*client_peers.OURS}) if client in client_peers.OURS else ():
            theirs = [slices[broker, workload, other, number] for number in rounds]
            ratios[other] = {
                name: spread([a[name] / b[name] for a, b in zip(own, theirs, strict=True)])
                for name in ("messages_per_s", "cpu_us")
            }
        rows.append(
            {
                "broker": broker,
                "workload": workload,
                "client": client,
                "figures": {name: spread([part[name] for part in own]) for name in own[0]},
                "ratios": ratios,
            }
        )
    workloads = list(dict.fromkeys(entry.workload for entry in measured))
    return sorted(
        rows, key=lambda row: (row["broker"], workloads.index(row["workload"]), row["client"])
    )


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The summary as a Markdown table: medians, and ratios as minimum / median / maximum."""
    others = sorted({other for row in rows for other in row["ratios"]})
    heads = ["broker", "workload", "client", "messages/s", "client CPU µs/message", "client cores"]
    heads += [
        f"{what} against {other}" for other in others for what in ("messages/s", "CPU/message")
    ]
    lines = list[list[str]]()
    for row in rows:
        figures = row["figures"]
        cells = [row["broker"], row["workload"], row["client"]]
        cells += [
            f"{figures['messages_per_s'][1]:,.0f}",
            f"{figures['cpu_us'][1]:,.1f}",
            f"{figures['cores'][1]:.2f}",
        ]
        for other in others:
            ratios = row["ratios"].get(other, {})
            cells += [
                " / ".join(_short(value) for value in ratios[figure]) if ratios else ""
                for figure in ("messages_per_s", "cpu_us")
            ]
        lines.append(cells)
    return markdown_table(heads, lines)


def _short(ratio: float) -> str:
    if ratio >= 10:
        return f"{ratio:,.0f}"
    return f"{ratio:.2f}" if ratio >= 0.1 else f"{ratio:.3f}"


def options(description: str, name: str, *, rounds: int, seconds: float) -> argparse.Namespace:
    """Read the command line."""
    parser = plan_options(
        description,
        rounds=rounds,
        seconds=seconds,
        java_warm_up_seconds=60.0,
        output=RESULTS / f"{name}.json",
    )
    parser.add_argument("--no-pypi", action="store_true", help="without PyPI's client")
    return parser.parse_args()


@contextlib.contextmanager
def _running(
    line: str | None, folder: Path, question: Question, *, with_pypi: bool
) -> Iterator[tuple[list[LoadingClient], list[BrokerUnderLoad]]]:
    """Every client and broker that can be had."""
    with contextlib.ExitStack() as running:
        under_load = running.enter_context(
            # Without the timer wheel RocketMQ's broker has no POP, which PyPI's client needs.
            brokers.running_brokers(
                line,
                (ASYNC,),
                folder,
                (),
                official_settings={"timerWheelEnable": "true", **question.official_settings},
            )
        )
        name_server = under_load[0].broker.name_servers[0]
        topics = list[str]()
        for broker in under_load:
            for name in question.topics():
                topics.append(topic_of(broker, name))
                broker.create_topic(topics[-1])
                wire.wait_route_code(
                    name_server, topics[-1], wire.SUCCESS, timeout_s=REGISTER_TIMEOUT_S
                )
        clients = [
            client_peers.our_client(name, folder / f"client-{number}", name_server)
            for number, name in enumerate(client_peers.OURS)
        ]
        if line is not None:
            clients.append(client_peers.java_client(line, folder / "java", name_server))
        if line is not None and with_pypi:
            try:
                proxy = running.enter_context(running_proxy(folder / "proxy", name_server))
                clients.append(client_peers.pypi_client(folder / "pypi", proxy, ",".join(topics)))
            except MissingPeerError as missing:
                print(f"without {client_peers.PYPI}: {missing}")
        yield running.enter_context(client_peers.running(clients)), under_load


def ask(chosen: argparse.Namespace, question_in: Callable[[Plan], Question]) -> list[Measured]:
    """Measure, print the table and keep the results; returns all slices."""
    line = brokers.newest_line(without=chosen.no_java or chosen.smoke)
    plan = plan_of(chosen, SMOKE)
    facts = facts_of(line)
    question = question_in(plan)
    with (
        tempfile.TemporaryDirectory(prefix="client-benchmark-") as folder,
        _running(line, Path(folder), question, with_pypi=not chosen.no_pypi) as (clients, under),
    ):
        measured = measure(clients, under, question, plan)
    rows = summary(measured)
    print("\nIt works; slices this short say nothing.\n" if chosen.smoke else "")
    print(table(rows))
    if not chosen.smoke:
        keep_slices(chosen.output, facts, plan, rows, measured)
    return measured
