"""Settings of every test run."""

from __future__ import annotations

import os
import signal

import pytest
from hypothesis import HealthCheck, settings

# Here, since with several workers only this file is read where their reports come together.
pytest_plugins = [
    "tests.unsteady",
    "tests.scheduling",
    "tests.interop.suite",
    "tests.postgres",
    "tests.spark.suite",
]

# How long one example takes says more of the machine than of the code; every test has a time limit.
# The same examples each time, so that a change is judged by itself; `make soak` looks for new ones.
settings.register_profile(
    "orbitmq",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="ORBITMQ_NEW_EXAMPLES" not in os.environ,
)
settings.load_profile("orbitmq")


@pytest.fixture(scope="session", autouse=True)
def children_heed_signals() -> None:
    """Let signals end the programs that tests start, even if the parent of the run ignores them.

    `nohup make test &` ignores SIGINT and SIGHUP, and what is ignored is inherited. What is caught
    is not: the run still survives these signals, and its children start with the default.
    """
    for number in (signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip campaigns unless their mark is asked for."""
    if "campaign" in config.option.markexpr:
        return
    campaigns = [item for item in items if item.get_closest_marker("campaign")]
    items[:] = [item for item in items if item not in campaigns]
    config.hook.pytest_deselected(items=campaigns)
