"""Crash tests for hours: `python -m tests.crash.soak FOLDER SECONDS [SEED] [--page PAGE]`.

With `--broker` whole brokers crash, rather than stores.
Each seed gives every kind of crash some rounds in both flush modes. A failure names its seed, its
files stay in FOLDER, and the run goes on to find others.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import logging
import platform
import shutil
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from orbitmq import __version__
from orbitmq.clock import SystemClock
from orbitmq.errors import OrbitError
from orbitmq.store.config import FlushMode
from tests.crash.broker_kills import run_broker_kills
from tests.crash.broker_power_loss import run_broker_chain
from tests.crash.damaging import run_damage
from tests.crash.flipping import run_flips
from tests.crash.killing import fork, run_kills
from tests.crash.power_loss_chain import run_chain
from tests.crash.table_damaging import run_table_damage

FAILURES_MAX = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of crash."""

    name: str
    # Takes folder, seed and flush mode.
    run: Callable[..., object]
    rounds: int
    checked: str


STORE_KINDS: Sequence[Kind] = (
    Kind(
        name="power loss",
        run=run_chain,
        rounds=8,
        checked="a simulated disk keeps what was synced, and any pages, sizes, names and deletions "
        "of the rest; some rounds are kills that leave unsynced bytes to the next loss. Log, queues "
        "and index agree; what is there is a prefix of what was appended; under SYNC_FLUSH it holds "
        "everything acknowledged",
    ),
    Kind(
        name="killed process",
        run=partial(run_kills, start_child=fork),
        rounds=10,
        checked="a child with three appending threads gets SIGKILL while it opens the store, or after "
        "up to 300 acknowledgements. Log, queues and index agree; every queue holds everything "
        "acknowledged, in order, in both modes; the next child goes on with what was left",
    ),
    Kind(
        name="flipped bit",
        run=run_flips,
        rounds=16,
        checked="one bit anywhere in the log, after a kill, after a clean stop, or with the queues "
        "lost. No body is served changed; damage is reported, or lies in a field listed in "
        "`store/files/record_checks.py`",
    ),
    Kind(
        name="damaged file",
        run=run_damage,
        rounds=40,
        checked="one file of a store, after a kill or a clean stop: emptied, halved, shortened, "
        "lengthened, overwritten with garbage or zeros, a bit flipped, deleted, or a folder in its "
        "place. The store serves everything acknowledged, in order and by key, or says which file "
        "is damaged; nothing that can be rebuilt keeps it from opening",
    ),
    Kind(
        name="damaged table",
        run=run_table_damage,
        rounds=40,
        checked="the same to a broker's tables of topics, groups, offsets and delays, to their copies, "
        "or to both. A broker that starts on them serves every message, delayed ones too, and logs "
        "each setting or offset that is lost; otherwise it names the file",
    ),
)

BROKER_KINDS: Sequence[Kind] = (
    Kind(
        name="power loss of a broker",
        run=lambda *args, **rounds: asyncio.run(run_broker_chain(*args, **rounds)),
        rounds=6,
        checked="a broker with timers and transactions on a simulated disk, on sockets, loses power "
        "at a sync of its start, work or stop, or is killed. All its files take part. What was seen "
        "stays; every timer is seen once and never early, recalled ones never; committed messages "
        "are seen once, rolled-back ones never. Under ASYNC_FLUSH, what was flushed counts",
    ),
    Kind(
        name="killed broker",
        run=run_broker_kills,
        rounds=4,
        checked="a broker process gets SIGKILL while clients send timers, recall them, run "
        "transactions and answer checks, and while files of the log are filled and deleted; some "
        "get it while they start. Then the same holds, in both modes",
    ),
)


@dataclass
class Campaign:
    """One run and its outcome."""

    title: str
    kinds: Sequence[Kind]
    folder: Path
    first_seed: int
    seed: int
    rounds: Counter[tuple[str, FlushMode]] = field(default_factory=Counter)
    # What became of each round, by kind.
    outcomes: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    failures: list[str] = field(default_factory=list)

    def run_seed(self) -> None:
        """Give every kind its rounds."""
        for kind in self.kinds:
            for mode in FlushMode:
                self._run(kind, mode)
        self.seed += 1

    def _run(self, kind: Kind, mode: FlushMode) -> None:
        folder = self.folder / f"{kind.name}-{self.seed}-{mode}".replace(" ", "-")
        folder.mkdir(parents=True)
        try:
            result = kind.run(folder, self.seed, mode, rounds=kind.rounds)
        except (AssertionError, OrbitError, OSError, TimeoutError) as error:
            self.failures.append(
                f"{kind.name}, seed {self.seed}, {mode}: {type(error).__name__}: {error}"
            )
            _say(f"{self.failures[-1]}; see {folder}")
            return
        if isinstance(result, Counter):
            self.outcomes[kind.name] += result
        self.rounds[kind.name, mode] += kind.rounds
        shutil.rmtree(folder)

    def page(self, seconds: float) -> str:
        """The result as a page."""
        now = datetime.datetime.fromtimestamp(SystemClock().now_ms() / 1000, datetime.UTC)
        header = " | ".join(str(mode) for mode in FlushMode)
        rows = [
            f"| {kind.name} | "
            + " | ".join(f"{self.rounds[kind.name, mode]:,}" for mode in FlushMode)
            + f" | {kind.checked} |"
            for kind in self.kinds
        ]
        outcomes = [
            f"- {name}: " + "; ".join(f"{what}: {count:,}" for what, count in counts.most_common())
            for name, counts in self.outcomes.items()
        ]
        failures = [f"- {failure}" for failure in self.failures]
        return "\n".join(
            [
                f"# {self.title}",
                "",
                f"{'Failed' if failures else 'Passed'}: {self.rounds.total():,} rounds in "
                f"{seconds / 60:.0f} minutes, seeds {self.first_seed} to {self.seed - 1}, "
                f"failures: {len(failures)}. {now.date().isoformat()}, OrbitMQ {__version__}, "
                f"Python {platform.python_version()}. "
                "Written by `python -m tests.crash.soak` (`make soak`).",
                "",
                f"| crash | rounds {header.replace(' | ', ' | rounds ')} | after each round |",
                "|---|---|---|---|",
                *rows,
                "",
                "What happened:",
                "",
                *outcomes,
                *(["", "Failures:", "", *failures] if failures else []),
                "",
            ]
        )


def _earlier_runs(page: Path) -> str:
    """What a page says of earlier runs, written by hand."""
    if not page.exists():
        return ""
    _, heading, runs = page.read_text(encoding="utf-8").partition("\nRuns before this one:\n")
    return heading + runs


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main() -> int:
    """Run until the time is up."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where stores are made; best in memory")
    parser.add_argument("seconds", type=float)
    parser.add_argument("seed", type=int, nargs="?", default=1000, help="of the first rounds")
    parser.add_argument("--page", type=Path, help="write the result here")
    parser.add_argument("--broker", action="store_true", help="crash whole brokers")
    arguments = parser.parse_args()
    # Stores are damaged on purpose, and say so.
    logging.getLogger("orbitmq").setLevel(logging.ERROR)
    clock = SystemClock()
    start_ms = clock.monotonic_ms()
    title, kinds = "Crashes and damage of the store", STORE_KINDS
    if arguments.broker:
        title, kinds = "Crashes of brokers with timers and transactions", BROKER_KINDS
    campaign = Campaign(title, kinds, arguments.folder, arguments.seed, arguments.seed)
    while True:
        campaign.run_seed()
        seconds = (clock.monotonic_ms() - start_ms) / 1000
        _say(f"seed {campaign.seed - 1}: {campaign.rounds.total()} rounds")
        if seconds >= arguments.seconds or len(campaign.failures) >= FAILURES_MAX:
            break
    page = campaign.page(seconds)
    _say(page)
    if arguments.page:
        arguments.page.write_text(page + _earlier_runs(arguments.page), encoding="utf-8")
    return 1 if campaign.failures else 0


if __name__ == "__main__":
    sys.exit(main())
