"""Processes of Spark: garbage collection there skips modules."""

from __future__ import annotations

import ctypes
import gc
import re
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest

from orbitmq.spark.sessions.worker_process import (
    freeze_loaded_modules,
    imports_without_gc,
    silence_exits,
    silence_worker_exit,
)


class _Cycle:
    """A cycle that only garbage collection frees."""

    itself: _Cycle


@pytest.fixture(autouse=True)
def _afresh() -> Iterator[None]:
    freeze_loaded_modules.cache_clear()
    # Python 3.12 starts with objects of its own left out of collections.
    gc.unfreeze()
    yield
    gc.unfreeze()
    freeze_loaded_modules.cache_clear()


def _run_as(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    main = ModuleType("__main__")
    main.__spec__ = ModuleSpec(name, None)
    monkeypatch.setitem(sys.modules, "__main__", main)


def test_present_objects_are_exempt_in_a_process_of_spark(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _run_as("pyspark.daemon", monkeypatch)

    freeze_loaded_modules()

    assert gc.get_freeze_count() > 10_000


def test_later_objects_are_collected(monkeypatch: pytest.MonkeyPatch) -> None:
    _run_as("pyspark.daemon", monkeypatch)
    freeze_loaded_modules()
    frozen = gc.get_freeze_count()
    cycle = _Cycle()
    cycle.itself = cycle
    seen = weakref.ref(cycle)
    del cycle

    freeze_loaded_modules()

    assert gc.get_freeze_count() <= frozen
    gc.collect()
    assert seen() is None


def test_other_processes_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    _run_as("my_program", monkeypatch)

    freeze_loaded_modules()

    assert gc.get_freeze_count() == 0


@pytest.mark.parametrize(
    "name",
    [
        "pyspark.daemon",
        "orbitmq.spark.sessions.worker_daemon",
        "pyspark.sql.streaming.python_streaming_source_runner",
    ],
)
def test_imports_in_a_process_of_spark_run_without_collections(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _run_as(name, monkeypatch)

    with imports_without_gc():
        assert not gc.isenabled()
        monkeypatch.setitem(sys.modules, "imported_just_now", ModuleType("imported_just_now"))

    assert gc.isenabled()
    assert gc.get_freeze_count() > 10_000


def test_nothing_is_exempt_if_nothing_was_imported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _run_as("pyspark.daemon", monkeypatch)

    with imports_without_gc():
        pass

    assert gc.get_freeze_count() == 0


def test_imports_in_other_processes_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    _run_as("my_program", monkeypatch)

    with imports_without_gc():
        assert gc.isenabled()
        monkeypatch.setitem(sys.modules, "imported_just_now", ModuleType("imported_just_now"))

    assert gc.get_freeze_count() == 0


def test_a_failed_import_leaves_collections_on(monkeypatch: pytest.MonkeyPatch) -> None:
    _run_as("pyspark.daemon", monkeypatch)

    with pytest.raises(ImportError), imports_without_gc():
        raise ImportError("not there")

    assert gc.isenabled()


_PAGE_FAULTS = """
import resource, sys
from types import ModuleType
from importlib.machinery import ModuleSpec
from orbitmq.spark.sessions.worker_process import keep_freed_memory

main = ModuleType("__main__")
main.__spec__ = ModuleSpec(sys.argv[1], None)
sys.modules["__main__"] = main
keep_freed_memory()


def work():
    return len([bytes(1_500_000) for _ in range(8)])


for _ in range(5):
    work()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    work()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "mallopt"), reason="this C library has no such options"
)
def test_freed_memory_is_kept_for_the_next_task() -> None:
    # Other processes are left alone.
    assert _page_faults("pyspark.daemon") < _page_faults("my_program") / 10


def _page_faults(name: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", _PAGE_FAULTS, name],
        capture_output=True,
        check=True,
        text=True,
        timeout=60,
    )
    return int(done.stdout)


def _daemon_of(worker: Callable[[str, bool], int]) -> ModuleType:
    daemon = ModuleType("daemon")
    daemon.worker = worker  # type: ignore[attr-defined]
    return daemon


def test_a_worker_whose_socket_is_closed_exits_silently() -> None:
    def worker(sock: str, authenticated: bool) -> int:  # noqa: FBT001
        raise BrokenPipeError(sock, authenticated)

    daemon = _daemon_of(worker)
    silence_exits(daemon)

    assert daemon.worker("socket", True) != 0


def test_other_exits_of_a_worker_are_left_to_spark() -> None:
    def worker(sock: str, authenticated: bool) -> int:  # noqa: FBT001
        if not authenticated:
            raise ValueError(sock)
        return 0

    daemon = _daemon_of(worker)
    silence_exits(daemon)

    assert daemon.worker("socket", True) == 0
    with pytest.raises(ValueError, match="socket"):
        daemon.worker("socket", False)


def test_only_processes_of_sparks_daemon_are_silenced(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("my_program", "pyspark.daemon"):
        _run_as(name, monkeypatch)
        main = sys.modules["__main__"]
        main.worker = len  # type: ignore[attr-defined]
        silence_worker_exit()
        assert (main.worker is len) == (name == "my_program")


def test_warnings_of_workers_have_a_time_and_a_level() -> None:
    program = """
import logging, sys
RUNNER = "pyspark.sql.streaming.python_streaming_source_runner"
from importlib.machinery import ModuleSpec
sys.modules["__main__"].__spec__ = ModuleSpec(RUNNER, None)
import orbitmq.spark.sessions.worker_process as worker_process
worker_process.log_with_times()
worker_process.log_with_times()
logging.getLogger("orbitmq.spark.reading").warning("data loss")
"""

    said = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stderr

    assert re.fullmatch(
        r"\S+ \d\d:\d\d:\d\d,\d+ WARNING orbitmq\.spark\.reading: data loss\n", said
    )


def test_warnings_of_tasks_have_a_time_and_a_level() -> None:
    program = """
import logging, runpy
from pyspark import daemon
daemon.manager = lambda: logging.getLogger("orbitmq.spark.rows").warning("unreadable")
runpy.run_module("orbitmq.spark.sessions.worker_daemon", run_name="__main__", alter_sys=True)
"""

    said = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stderr

    assert re.fullmatch(r"\S+ \S+ WARNING orbitmq\.spark\.rows: unreadable\n", said)
