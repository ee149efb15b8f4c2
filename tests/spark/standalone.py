"""A Spark cluster of processes that loses workers: `python -m tests.spark.standalone [--page P]`.

A master and two workers run as Spark's own scripts start them, each worker with an executor and its
Python processes. A topic becomes a Parquet table, and the table another topic, written exactly
once; in each of the two steps a worker is killed with all its processes, and replaced. A ledger
outside Spark says what must be in the second topic in the end.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import os
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pyspark
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession

from orbitmq import __version__
from orbitmq.clock import SystemClock
from orbitmq.embedded import Cluster
from orbitmq.spark import session
from orbitmq.spark.sessions.java_runtime import find_java_home
from tests.interop.ports import free_port
from tests.interop.processes import ChildProcess
from tests.spark.conftest import SMALL_JVM
from tests.spark.ledger import Wrong, wrong_counts
from tests.spark.streams import started
from tests.spark.topics import Topics
from tests.waiting import wait_until

START_TIMEOUT_S = 120
STEP_TIMEOUT_S = 900
WORKERS = 2
MEMORY = "512m"
# Of the first step: micro-batches, and how many are done when a worker is killed.
BATCHES = 5
BATCHES_BEFORE_KILL = 2
# Of the second one: tasks that write, and how many are done when a worker is killed.
WRITE_TASKS = 16
TASKS_BEFORE_KILL = 4


class SparkCluster:
    """A master, and workers of one core each."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = free_port()
        self._numbers = itertools.count(1)
        self._environment = {
            "JAVA_HOME": str(find_java_home()),
            "SPARK_HOME": str(Path(pyspark.__file__).parent),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": MEMORY,
            "SPARK_DAEMON_JAVA_OPTS": SMALL_JVM,
            "PYSPARK_PYTHON": sys.executable,
        }
        self._master = self._process("master", "deploy.master.Master", "--port", str(self._port))
        self._workers: list[ChildProcess] = []

    @property
    def url(self) -> str:
        """What drivers connect to."""
        return f"spark://127.0.0.1:{self._port}"

    @contextmanager
    def running(self) -> Iterator[None]:
        """Start everything, and end everything."""
        try:
            self._master.start()
            self._master.wait_printed("I have been elected leader", timeout_s=START_TIMEOUT_S)
            for _ in range(WORKERS):
                self._start_worker()
            for worker in self._workers:
                worker.wait_printed("Successfully registered", timeout_s=START_TIMEOUT_S)
            yield
        finally:
            for process in [*self._workers, self._master]:
                _kill_with_children(process)

    def replace_worker(self) -> None:
        """Kill the oldest worker, its executor and Python processes, and start another one."""
        _kill_with_children(self._workers.pop(0))
        self._start_worker()

    def _start_worker(self) -> None:
        name = f"worker-{next(self._numbers)}"
        sizes = ["--cores", "1", "--memory", "1g", "--work-dir", str(self._folder / f"{name}-work")]
        worker = self._process(name, "deploy.worker.Worker", *sizes, self.url)
        self._workers.append(worker.start())

    def _process(self, name: str, program: str, *arguments: str) -> ChildProcess:
        launcher = Path(pyspark.__file__).parent / "bin" / "spark-class"
        network = ["--host", "127.0.0.1", "--webui-port", "0"]
        return ChildProcess(
            f"Spark's {name}",
            [str(launcher), f"org.apache.spark.{program}", *network, *arguments],
            self._folder / name,
            environment=self._environment,
        )


def _kill_with_children(process: ChildProcess) -> None:
    """End a process and those that it started, as if their machine had failed."""
    if not process.is_running():
        return
    children = psutil.Process(process.popen.pid).children(recursive=True)
    # Processes that run tasks first, so that no task ends before.
    for child in children:
        # It may have ended meanwhile.
        with suppress(psutil.NoSuchProcess):
            child.kill()
    process.kill()
    psutil.wait_procs(children, timeout=START_TIMEOUT_S)


@dataclass
class Outcome:
    """Results of a run."""

    messages: int
    batches: int = 0
    rows: int = 0
    arrived: int = 0
    kills: int = 0
    executors_lost: int = 0
    # In each of the two steps.
    tasks_failed: tuple[int, int] = (0, 0)
    seconds: float = 0
    # Bodies that are not in the second topic exactly once.
    wrong: Wrong = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """Whether each message arrived once, and the kills hit tasks."""
        hit = self.kills == self.executors_lost == 2 and all(self.tasks_failed)
        return hit and self.rows == self.messages and not self.wrong


class Job:
    """The two steps, each with a worker killed while tasks run."""

    def __init__(
        self, spark: SparkSession, cluster: SparkCluster, namesrv: str, folder: Path
    ) -> None:
        self._spark = spark
        self._cluster = cluster
        self._namesrv = namesrv
        self._table = str(folder / "table")
        self._checkpoint = folder / "checkpoint"
        self.kills = 0

    @property
    def batches(self) -> int:
        """How many micro-batches of the first step are done."""
        return len(list(self._checkpoint.glob("commits/[0-9]*")))

    @property
    def table(self) -> DataFrame:
        """What the first step wrote."""
        return self._spark.read.parquet(self._table)

    def topic_to_table(self, topic: str, *, messages: int) -> None:
        """Stream a topic to the table."""
        source = {
            "namesrvAddr": self._namesrv,
            "subscribe": topic,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(max(messages // BATCHES, 1)),
        }
        stream = self._spark.readStream.format("rocketmq").options(**source).load()
        query = started(
            stream.writeStream.format("parquet")
            .options(path=self._table, checkpointLocation=str(self._checkpoint))
            .trigger(availableNow=True)
            .start
        )
        with self._killing(lambda: self.batches >= BATCHES_BEFORE_KILL and self._tasks_done() >= 0):
            if not query.awaitTermination(STEP_TIMEOUT_S):
                raise TimeoutError(f"the stream did not end in {STEP_TIMEOUT_S} s")

    def table_to_topic(self, topic: str) -> None:
        """Write the table to a topic, twice under the same id."""
        with self._killing(lambda: self._tasks_done() >= TASKS_BEFORE_KILL):
            self._write(topic)
        self._write(topic)

    def _write(self, topic: str) -> None:
        rows = self.table.select("body").repartition(WRITE_TASKS)
        sink = {"namesrvAddr": self._namesrv, "topic": topic}
        rows.write.format("rocketmq").options(
            **sink, delivery="exactlyOnce", writeId="standalone"
        ).mode("append").save()

    def _tasks_done(self) -> int:
        """How many tasks are done of a stage that keeps every worker busy; -1 if there is none."""
        tracker = self._spark.sparkContext.statusTracker()
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        done = [
            stage.numCompletedTasks for stage in stages if stage and stage.numActiveTasks >= WORKERS
        ]
        return max(done, default=-1)

    @contextmanager
    def _killing(self, due: Callable[[], bool]) -> Iterator[None]:
        """Replace a worker when it is due, while the step runs."""
        over = threading.Event()

        def wait_and_kill() -> None:
            wait_until(lambda: over.is_set() or due(), timeout_s=STEP_TIMEOUT_S, what="tasks")
            if not over.is_set():
                self._cluster.replace_worker()
                self.kills += 1

        killer = threading.Thread(target=wait_and_kill, name="killer")
        killer.start()
        try:
            yield
        finally:
            over.set()
            killer.join()


def run(folder: Path, messages: int) -> Outcome:
    """Run the job on a Spark cluster of its own."""
    clock = SystemClock()
    outcome = Outcome(messages)
    with ExitStack() as opened:
        mq = opened.enter_context(Cluster(brokers=2, in_memory=True))
        topics = opened.enter_context(Topics(mq))
        source, target = topics.filled(messages), topics.create()
        cluster = SparkCluster(folder)
        opened.enter_context(cluster.running())
        began_ms = clock.monotonic_ms()
        settings = {
            "spark.master": cluster.url,
            "spark.cores.max": str(WORKERS),
            "spark.executor.memory": MEMORY,
            "spark.executor.extraJavaOptions": SMALL_JVM,
            "spark.driver.extraJavaOptions": SMALL_JVM,
        }
        spark = session("standalone", cores=WORKERS, settings=settings)
        opened.callback(spark.stop)
        job = Job(spark, cluster, mq.namesrv, folder)
        job.topic_to_table(source, messages=messages)
        outcome.batches, outcome.rows = job.batches, job.table.count()
        _, failed_first = lost_and_failed(spark.sparkContext)
        job.table_to_topic(target)
        outcome.seconds = (clock.monotonic_ms() - began_ms) / 1000
        outcome.kills = job.kills
        outcome.executors_lost, failed = lost_and_failed(spark.sparkContext)
        outcome.tasks_failed = failed_first, failed - failed_first
        found = Counter(message.body.decode() for message in topics.messages(target))
    outcome.arrived = found.total()
    sent = Counter(f"message {number}" for number in range(messages))
    outcome.wrong = wrong_counts(found, low=sent, high=sent)
    return outcome


def lost_and_failed(context: SparkContext) -> tuple[int, int]:
    """How many executors are gone, and how many tasks failed, by Spark's own count."""
    store, jvm, gateway = context._jsc.sc().statusStore(), context._jvm, context._gateway
    assert jvm is not None
    assert gateway is not None
    listed = store.executorList(False)
    lost = sum(not listed.apply(number).isActive() for number in range(listed.size()))
    # By stage and attempt: Spark may attribute no lost task to an executor that is gone.
    every = jvm.java.util.ArrayList()
    stages = store.stageList(every, False, False, gateway.new_array(jvm.double, 0), every)
    return lost, sum(stages.apply(number).numFailedTasks() for number in range(stages.size()))


def page_of(outcome: Outcome) -> str:
    """Write the page with the results."""
    today = datetime.datetime.fromtimestamp(SystemClock().now_ms() / 1000, datetime.UTC).date()
    return f"""# A Spark cluster that loses workers

{"Passed" if outcome.passed else "FAILED"}. {today}, OrbitMQ {__version__}, PySpark {pyspark.__version__}. Written by `tests/spark/standalone.py` (`make soak`).

A master and {WORKERS} workers of a standalone Spark cluster, each a process of this machine, stream a topic of two brokers to a Parquet table in micro-batches, and write the table to a second topic with `delivery=exactlyOnce` in {WRITE_TASKS} tasks, after a shuffle; then again under the same `writeId`. In each of the two steps a worker gets SIGKILL while all cores run tasks, with its executor and Python processes, and another worker is started: in the first after {BATCHES_BEFORE_KILL} batches, in the second after {TASKS_BEFORE_KILL} tasks. At the end the second topic is compared, body by body, with what was sent. {outcome.seconds:.0f} s from the start of the driver.

| | |
|---|---|
| messages sent | {outcome.messages:,} |
| micro-batches | {outcome.batches} |
| workers killed | {outcome.kills} |
| executors that Spark lost | {outcome.executors_lost} |
| tasks that failed with them, in the first and in the second step | {outcome.tasks_failed[0]}, {outcome.tasks_failed[1]} |
| rows in the table | {outcome.rows:,} |
| messages in the second topic | {outcome.arrived:,} |
| messages missing or duplicated in the second topic | {len(outcome.wrong):,} |
"""


def main() -> int:
    """Run it; the exit code says whether it passed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=400_000)
    parser.add_argument("--page", type=Path)
    arguments = parser.parse_args()
    # The user's own settings would change what runs.
    os.environ.pop("SPARK_CONF_DIR", None)
    with tempfile.TemporaryDirectory(prefix="orbitmq-standalone-") as folder:
        outcome = run(Path(folder), arguments.messages)
    page = page_of(outcome)
    if arguments.page is not None:
        arguments.page.write_text(page)
    sys.stdout.write(page)
    for body, (found, low, _) in list(outcome.wrong.items())[:20]:
        sys.stdout.write(f"{body}: {found} times, not {low}\n")
    return 0 if outcome.passed else 1


if __name__ == "__main__":
    sys.exit(main())
