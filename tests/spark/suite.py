"""How the Spark suite runs beside the others: early, by one worker, with time for Spark to start.

Each process that uses Spark pays for a JVM and its start, so the whole folder is one piece of work
for one of pytest's workers; as the longest piece, it is begun first.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest

# What all tests of the suite share. It ends with the suite, not with the worker: those that come
# after it look for threads and open files of their own.
SHARED = pytest.StashKey[ExitStack]()
FOLDER = "tests/spark/"
# The first test of a process waits for Spark to start as well, and no test shall fail by the clock
# before what it waits for has had its own time.
TEST_TIMEOUT_S = 900


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if is_spark(item.nodeid) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TEST_TIMEOUT_S))
    items.sort(key=lambda item: not is_spark(item.nodeid))


def pytest_configure(config: pytest.Config) -> None:
    config.stash[SHARED] = ExitStack()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    if is_spark(item.nodeid) and (nextitem is None or not is_spark(nextitem.nodeid)):
        item.config.stash[SHARED].close()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Share out files, as `--dist loadfile` does, but all files of this folder as one."""
    if config.option.dist != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class OneFolderScheduling(LoadFileScheduling):  # type: ignore[misc]  # it has no types
        def _split_scope(self, nodeid: str) -> str:
            return FOLDER if is_spark(nodeid) else str(super()._split_scope(nodeid))

    return OneFolderScheduling(config, log)


def is_spark(nodeid: str) -> bool:
    """Whether a test belongs to this suite."""
    return nodeid.startswith(FOLDER)
