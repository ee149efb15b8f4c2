"""Which worker runs which tests: what is expensive to start is started by few of them.

The work is shared out in files, as `--dist loadfile` does. All files that share the one Spark of a
process are one piece; there are two of these, for the first worker and the last. Files of the
interop suite go to the next workers alone, since each worker that runs one starts official servers
and clients. The other workers run everything else, and so do these once their own files are done:
there are so many interop workers that this comes long before the end, and all workers end together.
Files about the one background loop of a process go to workers without Spark, whose clients keep
such a loop for good. Most tests wait more than they compute, so there are more workers than cores.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import pytest

Kind = Literal["spark", "interop", "loop", "other"]

SPARK_FOLDER: Final = "tests/spark/"
# They have a Spark of their own: one after the other, all its files would be the last to end.
PIPELINES_FOLDER: Final = "tests/spark/pipelines/"
INTEROP_FOLDER: Final = "tests/interop/"
# In Spark's folder, but without the Spark that its other files share.
OWN_PROCESS: Final = "tests/spark/test_demo.py"
# Their process has no background loop but their own.
LOOP_FOLDER: Final = "tests/unit/client/sync/"
INTEROP_WORKERS: Final = 3
# With fewer workers, each takes whatever comes next.
WORKERS_MIN: Final = 1 + INTEROP_WORKERS + 1 + 1
# The longest first: a worker that is left alone with one at the end makes the run longer.
LONGEST: Final = (
    "tests/interop/test_commands.py",
    "tests/interop/test_timers.py",
    "tests/interop/test_broker_consuming.py",
    "tests/interop/test_metadata_replication.py",
    "tests/interop/test_promotion.py",
    "tests/interop/test_broker_failures.py",
    "tests/interop/test_log_replication.py",
    "tests/interop/test_page_programs.py",
    "tests/interop/test_python_transactions.py",
    "tests/interop/test_java_store_in_ours.py",
    "tests/interop/test_config_files.py",
    "tests/interop/test_clients.py",
    "tests/replication/test_faults.py",
    "tests/integration/replication/test_promotion.py",
    "tests/integration/cli/test_broker_promote.py",
    "tests/spark/test_demo.py",
    "tests/integration/broker/test_without_compiled_code.py",
    "tests/integration/client/test_bad_input.py",
    "tests/unit/spark/writing/test_writers.py",
    "tests/integration/client/test_producer_failures.py",
    "tests/unit/store/opening/test_log_cut.py",
    "tests/integration/replication/test_memory_topics.py",
    "tests/integration/replication/test_exactly_once_promotion.py",
    "tests/unit/broker/test_fast_and_ordinary_sends.py",
    "tests/integration/docs/test_first_steps.py",
    "tests/integration/client/test_chaos_producer.py",
    "tests/integration/client/test_chaos_consumers.py",
    "tests/integration/client/test_chaos_reconnects.py",
    "tests/integration/broker/test_pulling.py",
    "tests/integration/cli/test_up.py",
    "tests/integration/cli/test_store.py",
)
LATE_FOLDER: Final = "tests/unit/"


def work_unit(nodeid: str) -> str:
    """Name the piece of work that a test belongs to: one worker runs all of it."""
    file = nodeid.partition("::")[0]
    if file == OWN_PROCESS:
        return file
    return next((one for one in (PIPELINES_FOLDER, SPARK_FOLDER) if file.startswith(one)), file)


def kind_of(unit: str) -> Kind:
    """Tell what a worker has to start for a piece of work."""
    if unit in (PIPELINES_FOLDER, SPARK_FOLDER):
        return "spark"
    if unit.startswith(LOOP_FOLDER):
        return "loop"
    return "interop" if unit.startswith(INTEROP_FOLDER) else "other"


def kinds_for(worker: int, workers: int) -> tuple[Kind, ...]:
    """Tell which kinds of work a worker takes, the first one first.

    A worker that replaces a broken one has a higher number than all, and takes anything.
    """
    if workers < WORKERS_MIN or worker >= workers:
        return ("loop", "spark", "interop", "other")
    if worker in (0, workers - 1):
        return ("spark", "other")
    if worker <= INTEROP_WORKERS:
        return ("interop", "loop", "other")
    return ("other", "loop")


def _start_order(nodeid: str) -> tuple[int, bool]:
    unit = work_unit(nodeid)
    place = LONGEST.index(unit) if unit in LONGEST else len(LONGEST)
    return place, unit.startswith(LATE_FOLDER)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: _start_order(item.nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    if config.option.dist != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class WorkerKinds(LoadFileScheduling):  # type: ignore[misc]  # it has no types
        def _split_scope(self, nodeid: str) -> str:
            return work_unit(nodeid)

        def _next_unit(self, node: Any) -> str | None:
            number = int(node.gateway.id.removeprefix("gw"))
            for kind in kinds_for(number, self.numnodes):
                for unit in self.workqueue:
                    if kind_of(unit) == kind:
                        return str(unit)
            return None

        def _assign_work_unit(self, node: Any) -> None:
            # The base class takes the first.
            unit = self._next_unit(node)
            if unit is None:
                node.shutdown()
            else:
                self.workqueue.move_to_end(unit, last=False)
                super()._assign_work_unit(node)

    return WorkerKinds(config, log)
