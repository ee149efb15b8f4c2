"""Many killed drivers: `python -m tests.spark.soak [--kills N] [--page PAGE]`.

A query from a topic to a Parquet table loses its driver again and again, always in mid-batch, while
a producer goes on. A ledger outside Spark says what must be in the table in the end.
"""

from __future__ import annotations

import argparse
import datetime
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from orbitmq import __version__
from orbitmq.clock import SystemClock
from orbitmq.embedded import Cluster
from orbitmq.spark import session
from tests.spark.conftest import SMALL_JVM
from tests.spark.kills import (
    Checkpoint,
    Ledger,
    counted,
    differences,
    kill_within,
    run_to_the_end,
    table_query,
)

ROWS_A_BATCH = 500
# A driver is killed in one of the first batches that it makes: which one changes from kill to kill.
BATCHES_MAX = 5


@dataclass
class Campaign:
    """What came of the kills."""

    kills: int = 0
    # Those after which a batch was begun and not done.
    in_mid_batch: int = 0
    batches: int = 0
    sent: int = 0
    stored: int = 0
    wrong: dict[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """Whether every row is there once, and the kills were worth it."""
        return not self.wrong and self.stored > 0 and self.in_mid_batch == self.kills


def run(folder: Path, kills: int) -> Campaign:
    """Kill so many drivers, then do the rest and compare."""
    campaign = Campaign()
    with Cluster(brokers=2, in_memory=True) as cluster:
        cluster.create_topic("rows", queues=4)
        query = table_query(
            {"namesrvAddr": cluster.namesrv, "subscribe": "rows"}, folder, rows_a_batch=ROWS_A_BATCH
        )
        checkpoint = Checkpoint(query)
        with Ledger(cluster.namesrv, "rows", pause_s=0.02) as ledger:
            for number in range(kills):
                batch = max(checkpoint.planned, default=-1) + number % BATCHES_MAX
                left = kill_within([query], {checkpoint: batch}, log=folder / "driver.log")
                campaign.kills += 1
                campaign.in_mid_batch += bool(left)
        spark = session("soak", cores=2, settings={"spark.driver.extraJavaOptions": SMALL_JVM})
        try:
            run_to_the_end(spark, query)
            found = counted(spark, query)
        finally:
            spark.stop()
    campaign.batches = len(checkpoint.planned)
    campaign.sent, campaign.stored = ledger.acknowledged.total(), found.total()
    campaign.wrong = differences(ledger.acknowledged, found)
    return campaign


def page_of(campaign: Campaign, *, seconds: float) -> str:
    """Tell people what came of it."""
    today = datetime.datetime.fromtimestamp(SystemClock().now_ms() / 1000, datetime.UTC).date()
    return f"""# Spark drivers killed in mid-batch

{"Passed" if campaign.passed else "FAILED"}. {today}, OrbitMQ {__version__}. Written by `tests/spark/soak.py` (`make soak`).

A query moves rows from a topic of two brokers to a Parquet table, by way of a shuffle, while a producer goes on sending. Its driver, JVM and all, gets SIGKILL within a batch and is started again from its checkpoint. In the end a ledger that the producer kept outside Spark is compared with the table, key by key. {seconds:.0f} s.

| | |
|---|---|
| drivers killed | {campaign.kills} |
| of these within a batch: its end was stored, its commit was not | {campaign.in_mid_batch} |
| batches | {campaign.batches:,} |
| messages acknowledged | {campaign.sent:,} |
| rows in the table | {campaign.stored:,} |
| keys that are missing or there more than once | {len(campaign.wrong):,} |
"""


def main() -> int:
    """Run a campaign; the exit code tells whether it passed."""
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
    for key, (expected, found) in list(campaign.wrong.items())[:20]:
        sys.stdout.write(f"{key}: {found} times, not {expected}\n")
    return 0 if campaign.passed else 1


if __name__ == "__main__":
    sys.exit(main())
