"""Processes of Spark's: collections there leave modules out."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest

from orbitmq.spark.worker_process import imports_of_a_worker, spare_collections


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
    "name", ["pyspark.daemon", "pyspark.sql.streaming.python_streaming_source_runner"]
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
