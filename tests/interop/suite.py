"""What runs of the interop suite, and what is said of it at the end of a run.

Environment:
    INTEROP=1             run the suite; a missing tool then fails it
    ORBITMQ_NO_INTEROP=1  leave the suite out
    ORBITMQ_NO_GO=1       leave the Go client out
    ORBITMQ_RECORD_SCENARIOS=1  write scenarios.txt from what is collected

With several workers, tests run in processes of their own: there is collected and built, and here
is told. What the one has to know of the other is in the reports, and in `workeroutput`.
"""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests.interop import building, processes
from tests.interop.building import is_set
from tests.interop.class_archives import make_class_archives
from tests.interop.matrix import Matrix, scenario_of
from tests.interop.peers import Peer
from tests.interop.scenario_rows import record_scenarios
from tests.unsteady import dead_process

# Above what all waits of a test take together, and the start of the servers that it shares.
TEST_TIMEOUT_S = 900

MATRIX = pytest.StashKey[Matrix]()
WHOLE_SUITE = pytest.StashKey[bool]()
BUILD_FAILURE = pytest.StashKey[building.BuildError]()
LEFT_OUT = pytest.StashKey[str]()


# --- What runs ---------------------------------------------------------------------------------


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "scenario(fixture, name): a row of the interop matrix")
    config.stash[MATRIX] = Matrix()
    config.pluginmanager.register(config.stash[MATRIX])


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    interop = [item for item in items if item.get_closest_marker("interop")]
    if not interop:
        return
    by_marker = "interop" in config.option.markexpr.replace("not interop", "")
    reason = None
    if is_set("ORBITMQ_NO_INTEROP"):
        reason = "ORBITMQ_NO_INTEROP is set"
    elif not is_set("INTEROP") and not by_marker:
        reason = "set INTEROP=1"
    if reason is not None:
        config.stash[LEFT_OUT] = reason
        _deselect(config, items, interop)
        return

    config.stash[WHOLE_SUITE] = is_set("INTEROP") and _is_whole_suite(config, interop)
    for item in interop:
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TEST_TIMEOUT_S))
    if is_set("ORBITMQ_RECORD_SCENARIOS") and config.stash[WHOLE_SUITE]:
        record_scenarios(row for item in interop for _, row in scenario_of(item))
    if is_set("ORBITMQ_NO_GO"):
        _deselect(config, items, [item for item in interop if _uses_go(item)])


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build here, where no time limit of a single test runs."""
    interop = [item for item in session.items if item.get_closest_marker("interop")]
    if not interop or session.config.option.collectonly:
        return
    try:
        building.build_java()
        make_class_archives()
        if any(_uses_go(item) or _uses_all_clients(item) for item in interop):
            building.build_go()
    except building.BuildError as failure:
        session.config.stash[BUILD_FAILURE] = failure


def _deselect(config: pytest.Config, items: list[pytest.Item], unwanted: list[pytest.Item]) -> None:
    left_out = set(unwanted)
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=unwanted)


def _uses_go(item: pytest.Item) -> bool:
    params = item.callspec.params if hasattr(item, "callspec") else {}
    return any(isinstance(value, Peer) and value.kind == "go" for value in params.values())


def _uses_all_clients(item: pytest.Item) -> bool:
    names = item.fixturenames if isinstance(item, pytest.Function) else []
    return "official_clients" in names and not is_set("ORBITMQ_NO_GO")


def _is_whole_suite(config: pytest.Config, interop: list[pytest.Item]) -> bool:
    narrowed = config.option.keyword or config.option.lf or any("::" in arg for arg in config.args)
    files = set(Path(__file__).parent.glob("test_*.py"))
    return not narrowed and files <= {item.path for item in interop}


# --- What is said at the end -------------------------------------------------------------------


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if item.get_closest_marker("interop"):
        report.user_properties.extend(scenario_of(item))
        if report.failed:
            report.sections.extend((process.name, process.tail()) for process in processes.alive())
            for process in processes.died():
                dead_process(report, process.name)
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    config = session.config
    if hasattr(config, "workeroutput"):
        config.workeroutput["interop is whole"] = config.stash.get(WHOLE_SUITE, False)
        config.workeroutput["interop left out"] = config.stash.get(LEFT_OUT, "")
    elif session.exitstatus == pytest.ExitCode.OK and _shortfalls(config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    # A worker that broke down says nothing; the run fails without this.
    said: dict[str, Any] = getattr(node, "workeroutput", {})
    if said.get("interop is whole"):
        node.config.stash[WHOLE_SUITE] = True
    if reason := said.get("interop left out"):
        node.config.stash[LEFT_OUT] = reason


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    if LEFT_OUT in config.stash:
        terminalreporter.write_line(f"interop: not run, {config.stash[LEFT_OUT]}")
    if rows := config.stash[MATRIX].rows():
        terminalreporter.section("interop matrix")
        for row in rows:
            terminalreporter.write_line(row)
    for shortfall in _shortfalls(config):
        terminalreporter.write_line(f"interop: {shortfall}", red=True)


def _shortfalls(config: pytest.Config) -> list[str]:
    if not config.stash.get(WHOLE_SUITE, False) or config.option.collectonly:
        return []
    without = {"go"} if is_set("ORBITMQ_NO_GO") else set()
    return config.stash[MATRIX].shortfalls(without=without)
