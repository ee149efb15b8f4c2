"""Do the benchmarks of brokers still work? Runs them for a moment on our broker, started once.

python -m benchmarks.broker_smoke
"""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import replace
from pathlib import Path

from benchmarks.broker_pull import SMOKE_MESSAGES_A_QUEUE, PullCost
from benchmarks.broker_rounds import SMOKE, Question, measure, summary
from benchmarks.broker_send import SendCost
from benchmarks.broker_start import SMOKE as SMALL
from benchmarks.broker_start import fill, hold
from benchmarks.brokers import SYNC, running_brokers
from benchmarks.delayed_messages import DelayedMessages
from benchmarks.pending_timers import PROBED, probe
from benchmarks.pending_timers import SMOKE_MESSAGES as PENDING_SMOKE_MESSAGES
from benchmarks.pending_timers import TOPIC as PENDING_TOPIC
from benchmarks.pending_timers import fill as fill_timers
from benchmarks.timer_burst import SMOKE_MESSAGES, TimerBurst
from benchmarks.transactions import Transactions

PLAN = replace(SMOKE, seconds=0.05)


def main() -> None:
    """Run every workload once; whatever goes wrong ends it with an error."""
    with tempfile.TemporaryDirectory(prefix="broker-smoke-") as name:
        folder = Path(name)
        transactions = Transactions(folder, line=None)
        questions: list[Question] = [
            SendCost(folder),
            PullCost(folder, messages_a_queue=SMOKE_MESSAGES_A_QUEUE),
            DelayedMessages(folder, messages=1_000, seconds=PLAN.seconds),
            TimerBurst(folder, messages=SMOKE_MESSAGES, seconds=PLAN.seconds),
            transactions,
        ]
        topics = [topic for question in questions for topic in question.topics]
        with running_brokers(None, (SYNC,), folder, topics) as under_load:
            try:
                for question in questions:
                    assert summary(asyncio.run(measure(under_load, question, PLAN)))
            finally:
                transactions.stop()
            (broker,) = under_load
            asyncio.run(fill(broker, SMALL.topics, folder))
            print(asyncio.run(hold(broker, SMALL)))
            broker.create_topics([PENDING_TOPIC, PROBED])
            print(asyncio.run(fill_timers(broker, PENDING_SMOKE_MESSAGES, folder)))
            print(asyncio.run(probe(broker, folder, 0)))


if __name__ == "__main__":
    main()
