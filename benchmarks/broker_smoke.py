"""Do the benchmarks of brokers still work? Runs them for a moment on our broker, started once.

python -m benchmarks.broker_smoke
"""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import replace
from pathlib import Path

from benchmarks.broker_latency import DeliveryTime
from benchmarks.broker_pull import SMOKE_MESSAGES_A_QUEUE, PullCost
from benchmarks.broker_rounds import SMOKE, Question, measure, summary
from benchmarks.broker_send import SendCost
from benchmarks.broker_start import SMOKE as SMALL
from benchmarks.broker_start import fill, hold
from benchmarks.brokers import SYNC, running_brokers

PLAN = replace(SMOKE, seconds=0.05)


def main() -> None:
    """Run every workload once; whatever goes wrong ends it with an error."""
    with tempfile.TemporaryDirectory(prefix="broker-smoke-") as name:
        folder = Path(name)
        questions: list[Question] = [
            SendCost(folder),
            PullCost(folder, messages_a_queue=SMOKE_MESSAGES_A_QUEUE),
            DeliveryTime(folder),
        ]
        topics = [topic for question in questions for topic in question.topics]
        with running_brokers(None, (SYNC,), folder, topics) as under_load:
            for question in questions:
                assert summary(asyncio.run(measure(under_load, question, PLAN)))
            (broker,) = under_load
            asyncio.run(fill(broker, SMALL.topics, folder))
            print(asyncio.run(hold(broker, SMALL)))


if __name__ == "__main__":
    main()
