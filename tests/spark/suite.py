"""Hooks of the Spark suite: time for Spark to start, and its end after the last test."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import ExitStack

import pytest

from tests.scheduling import SPARK_FOLDER
from tests.unsteady import dead_process

# Shared by all tests of the suite. It ends with the suite, not with the worker: later tests
# check for leaked threads and open files.
SHARED = pytest.StashKey[ExitStack]()
# The first test of a process also waits for Spark to start, and no test should time out
# before its own waits do.
TEST_TIMEOUT_S = 900


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if is_spark(item.nodeid) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TEST_TIMEOUT_S))


def pytest_configure(config: pytest.Config) -> None:
    config.stash[SHARED] = ExitStack()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    if is_spark(item.nodeid) and (nextitem is None or not is_spark(nextitem.nodeid)):
        item.config.stash[SHARED].close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and is_spark(item.nodeid) and _spark_died():
        dead_process(report, "Spark")
    return report


def _spark_died() -> bool:
    if "pyspark.core.context" not in sys.modules:
        return False
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    return gateway is not None and gateway.proc.poll() is not None


def is_spark(nodeid: str) -> bool:
    """Whether a test belongs to this suite."""
    return nodeid.startswith(SPARK_FOLDER)
