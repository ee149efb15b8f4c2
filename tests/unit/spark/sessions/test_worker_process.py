"""Processes of Spark's: collections there leave modules out."""

from __future__ import annotations

import ctypes
import gc
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest

from orbitmq.spark.sessions.worker_process import (
    end_a_worker_quietly,
    end_quietly,
    imports_of_a_worker,
    spare_collections,
)


class _Cycle:
    """What only a collection gets rid of."""

    itself: _Cycle


@pytest.fixture(autouse=True)
def _afresh() -> Iterator[None]:
    spare_collections.cache_clear()
    assert gc.get_freeze_count() == 0
    yield
    gc.unfreeze()
    spare_collections.cache_clear()


def _run_as(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    main = ModuleType("__main__")
    main.__spec__ = ModuleSpec(name, None)
    monkeypatch.setitem(sys.modules, "__main__", main)


def test_what_is_there_in_a_process_of_sparks_is_not_looked_at_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _run_as("pyspark.daemon", monkeypatch)

    spare_collections()

    assert gc.get_freeze_count() > 10_000


def test_what_comes_later_is_collected(monkeypatch: pytest.MonkeyPatch) -> None:
    _run_as("pyspark.daemon", monkeypatch)
    spare_collections()
    frozen = gc.get_freeze_count()
    cycle = _Cycle()
    cycle.itself = cycle
    seen = weakref.ref(cycle)
    del cycle

    spare_collections()

    assert gc.get_freeze_count() <= frozen
    gc.collect()
    assert seen() is None


def test_the_users_own_processes_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    _run_as("my_program", monkeypatch)

    spare_collections()

    assert gc.get_freeze_count() == 0


@pytest.mark.parametrize(
    "name",
    [
        "pyspark.daemon",
        "orbitmq.spark.sessions.worker_daemon",
        "pyspark.sql.streaming.python_streaming_source_runner",
    ],
)
def test_imports_in_a_process_of_sparks_are_not_interrupted_by_collections(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _run_as(name, monkeypatch)

    with imports_of_a_worker():
        assert not gc.isenabled()
        monkeypatch.setitem(sys.modules, "imported_just_now", ModuleType("imported_just_now"))

    assert gc.isenabled()
    assert gc.get_freeze_count() > 10_000


def test_nothing_is_left_out_of_collections_if_nothing_was_imported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _run_as("pyspark.daemon", monkeypatch)

    with imports_of_a_worker():
        pass

    assert gc.get_freeze_count() == 0


def test_imports_in_the_users_own_processes_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    _run_as("my_program", monkeypatch)

    with imports_of_a_worker():
        assert gc.isenabled()
        monkeypatch.setitem(sys.modules, "imported_just_now", ModuleType("imported_just_now"))

    assert gc.get_freeze_count() == 0


def test_a_module_that_is_not_there_leaves_collections_on(monkeypatch: pytest.MonkeyPatch) -> None:
    _run_as("pyspark.daemon", monkeypatch)

    with pytest.raises(ImportError), imports_of_a_worker():
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
def test_memory_that_a_task_frees_serves_the_next_one() -> None:
    # The user's own processes are left alone.
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


def test_a_worker_that_nobody_listens_to_ends_without_a_word() -> None:
    def worker(sock: str, authenticated: bool) -> int:  # noqa: FBT001
        raise BrokenPipeError(sock, authenticated)

    daemon = _daemon_of(worker)
    end_quietly(daemon)

    assert daemon.worker("socket", True) != 0


def test_what_else_becomes_of_a_worker_is_for_spark() -> None:
    def worker(sock: str, authenticated: bool) -> int:  # noqa: FBT001
        if not authenticated:
            raise ValueError(sock)
        return 0

    daemon = _daemon_of(worker)
    end_quietly(daemon)

    assert daemon.worker("socket", True) == 0
    with pytest.raises(ValueError, match="socket"):
        daemon.worker("socket", False)


def test_only_processes_of_sparks_daemon_are_made_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("my_program", "pyspark.daemon"):
        _run_as(name, monkeypatch)
        main = sys.modules["__main__"]
        main.worker = len  # type: ignore[attr-defined]
        end_a_worker_quietly()
        assert (main.worker is len) == (name == "my_program")
