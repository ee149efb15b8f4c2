"""Many killed drivers: `python -m tests.spark.soak [--kills N] [--page PAGE]`.

Queries from a topic to a Parquet table and to another topic lose their driver again and again,
always in mid-batch, while a producer keeps sending. After each kill, and at the end, a ledger
outside Spark says what must be in the table and in the topic.
"""

from __future__ import annotations

import argparse
import datetime
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from orbitmq import __version__
from orbitmq.clock import SystemClock
from orbitmq.spark import session
from tests.spark.conftest import SMALL_JVM
from tests.spark.ledger import Wrong
from tests.spark.trial import SINKS, Kill, Trial

ROWS_A_BATCH = 500
# A driver is killed in one of its first batches; which one changes from kill to kill.
BATCHES_MAX = 3
# Wrong keys to name at the end of a run.
SHOWN_MAX = 20


@dataclass(frozen=True, slots=True)
class Outcome:
    """Results of the kills for one sink."""

    # Kills after which a batch was started and not done.
    in_mid_batch: int
    # Kills after which a committed row was missing, or present more than once.
    wrong_after: int
    # Batches that the checkpoint still knows.
    batches: int
    stored: int
    # Rows missing or duplicated in the end.
    wrong: Wrong


@dataclass(frozen=True, slots=True)
class Campaign:
    """Results of the kills."""

    kills: int
    between_commits: int
    staged: int
    sent: int
    outcomes: dict[str, Outcome]

    @property
    def passed(self) -> bool:
        """Whether every row is present once, and the kills hit batches."""
        return self.between_commits == self.kills // 2 and all(
            not each.wrong
            and not each.wrong_after
            and each.stored == self.sent > 0
            and each.in_mid_batch == self.kills
            for each in self.outcomes.values()
        )


def run(folder: Path, kills: int) -> Campaign:
    """Kill this many drivers, every other between the commits of two brokers; finish, and compare."""
    spark = session("soak", cores=2, settings={"spark.driver.extraJavaOptions": SMALL_JVM})
    try:
        with Trial(spark, folder, rows_a_batch=ROWS_A_BATCH) as trial:
            for number in range(kills):
                if number % 2:
                    trial.kill_between_commits()
                else:
                    trial.kill_in_mid_batch(more=1 + number // 2 % BATCHES_MAX)
                _tell(number, trial.kills[-1])
            for sink in SINKS:
                trial.run_to_the_end(sink)
            return Campaign(
                kills=len(trial.kills),
                between_commits=sum(_is_between_commits(kill) for kill in trial.kills),
                staged=len(trial.target.staged_marks()),
                sent=trial.ledger.all_keys().total(),
                outcomes={sink: _outcome(trial, sink) for sink in SINKS},
            )
    finally:
        spark.stop()


def _tell(number: int, kill: Kill) -> None:
    sys.stdout.write(f"kill {number + 1}: {kill}\n")
    sys.stdout.flush()


def _is_between_commits(kill: Kill) -> bool:
    half = kill.half
    if half is None:
        return False
    moved = [broker for broker, rows in half.decided.items() if half.visible[broker] == rows]
    waiting = [broker for broker in half.decided if half.visible[broker] == 0]
    return kill.interrupted["topic"] == {half.batch} and len(moved) == len(waiting) == 1


def _outcome(trial: Trial, sink: str) -> Outcome:
    return Outcome(
        in_mid_batch=sum(bool(kill.interrupted[sink]) for kill in trial.kills),
        wrong_after=sum(bool(kill.wrong[sink]) for kill in trial.kills),
        batches=len(trial.checkpoints[sink].planned),
        stored=trial.counted(sink).total(),
        wrong=trial.wrong_at_the_end(sink),
    )


def page_of(campaign: Campaign, *, seconds: float) -> str:
    """Write the page with the results."""
    today = datetime.datetime.fromtimestamp(SystemClock().now_ms() / 1000, datetime.UTC).date()
    table, topic = (campaign.outcomes[sink] for sink in SINKS)
    return f"""# Spark drivers killed in mid-batch

{"Passed" if campaign.passed else "FAILED"}. {today}, OrbitMQ {__version__}. Written by `tests/spark/soak.py` (`make soak`).

Two queries move rows from a topic of two brokers, one to a Parquet table, one to another topic with `delivery=exactlyOnce`, while a producer keeps sending. A shuffle moves rows between tasks, in another order at every attempt, and in every batch a task fails in its first attempt. The driver of both, with its JVM, gets SIGKILL within a batch of each and restarts from its checkpoints. Every other kill comes when the decision on a batch of the topic is stored and its rows are visible at one broker, but not at the other, which is notified only after all processes of the driver have ended; the brokers then complete the batch on their own. After each kill, and at the end, table and topic are compared, key by key, with a ledger that the producer kept outside Spark. {seconds:.0f} s.

| | Parquet table | topic, `exactlyOnce` |
|---|---|---|
| drivers killed | {campaign.kills} | {campaign.kills} |
| of these within a batch: its end was stored, its commit was not | {table.in_mid_batch} | {topic.in_mid_batch} |
| of these between the commits of two brokers | | {campaign.between_commits} |
| batches that the checkpoint still knows: Spark forgets all but the last hundred | {table.batches:,} | {topic.batches:,} |
| messages acknowledged to the producer | {campaign.sent:,} | {campaign.sent:,} |
| rows staged, including those of failed and repeated tasks | | {campaign.staged:,} |
| rows at the end | {table.stored:,} | {topic.stored:,} |
| kills after which a row of a finished batch was missing, or any row was duplicated | {table.wrong_after} | {topic.wrong_after} |
| keys missing or duplicated at the end | {len(table.wrong):,} | {len(topic.wrong):,} |
"""


def main() -> int:
    """Run a campaign; the exit code says whether it passed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--page", type=Path)
    arguments = parser.parse_args()
    clock = SystemClock()
    began_ms = clock.monotonic_ms()
    with tempfile.TemporaryDirectory(prefix="orbitmq-spark-") as folder:
        campaign = run(Path(folder), arguments.kills)
    page = page_of(campaign, seconds=(clock.monotonic_ms() - began_ms) / 1000)
    if arguments.page is not None:
        arguments.page.write_text(page)
    sys.stdout.write(page)
    for sink, outcome in campaign.outcomes.items():
        for key, (found, low, high) in list(outcome.wrong.items())[:SHOWN_MAX]:
            sys.stdout.write(f"{sink} {key}: {found} times, not {low} to {high}\n")
    return 0 if campaign.passed else 1


if __name__ == "__main__":
    sys.exit(main())
