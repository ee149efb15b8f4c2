"""Runs failed tests once more, and reports those that then pass as unsteady.

With `--rerun-failed` the controlling process runs each failed test again before the summary: alone,
in a child process, all of them within three minutes. A test that passes counts as `unsteady`, and
the run does not fail because of it. `tests/unsteady.md` lists every such test with its cause.

Some failures are final, since they are the product's until proven otherwise: those of crash tests
and property tests, collection errors, and assertions about messages (which arrive, how often, in
which order, when). So are failures of a test that `tests/unsteady.md` lists without a fix. More
than five unsteady tests fail the run.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

RERUN_SECONDS_MAX: Final = 180
UNSTEADY_MAX: Final = 5
_GOODBYE_SECONDS: Final = 10
KNOWN_FILE: Final = Path(__file__).with_suffix(".md")
_ROOT: Final = KNOWN_FILE.parents[1]
UNSTEADY: Final = "unsteady"

# What a report says of a failure, on its way from a worker to the controlling process.
_FINAL: Final = "final"
_DEAD_PROCESS: Final = "dead process"
_RERUNS: Final = pytest.StashKey["_Reruns"]()
_CRASH_TESTS: Final = "tests/crash/"
_WORDS: Final = re.compile(r"[A-Z]?[a-z]+")
# A failed assertion with one of these words may mean that a message was lost, doubled, reordered
# or delivered early.
_MESSAGE_WORD: Final = re.compile(
    r"""arrived|bod(y|ies)|committed|consumed|deliver(ies|ed)|doubled|due|duplicates|early|ids|ledger|
    lost|messages?|missing|numbers|offsets?|order(ed)?|polled|pulled|read|received|records?|
    reordered|rows?|sent|sequence|stored|texts|twice""",
    re.VERBOSE,
)


class Hooks:
    """What other plug-ins may want to know."""

    def pytest_passed_again(self, nodeid: str) -> None:
        """A test failed, and passed when it was run again."""


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    pluginmanager.add_hookspecs(Hooks)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rerun-failed",
        action="store_true",
        help="run failed tests once more; those that pass are unsteady, and do not fail the run",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "final: a failed assertion of this test is about messages; never run it again"
    )


# --- where tests run: is a failure final? -------------------------------------------------------


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and call.excinfo is not None:
        reason = _why_final(item, call.excinfo)
        if reason:
            report.user_properties.append((_FINAL, reason))
    return report


def dead_process(report: pytest.TestReport, name: str) -> None:
    """Note on a failed report that a process died which the test shared with others."""
    report.user_properties.append(
        (_DEAD_PROCESS, f"{name} of {os.environ.get('PYTEST_XDIST_WORKER', 'this process')}")
    )


def _why_final(item: pytest.Item, failure: pytest.ExceptionInfo[BaseException]) -> str:
    if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
        return "a property test"
    if not failure.errisinstance(AssertionError):
        return ""
    if item.get_closest_marker("final") or any(
        _mentions_messages(str(entry.statement))
        for entry in failure.traceback
        if Path(entry.path).is_relative_to(item.config.rootpath / "tests")
    ):
        return "an assertion about messages"
    return ""


def _mentions_messages(statement: str) -> bool:
    return any(_MESSAGE_WORD.fullmatch(word.lower()) for word in _WORDS.findall(statement))


# --- in the controlling process: run again ------------------------------------------------------


@dataclass(slots=True, eq=False)
class _Reruns:
    """How failed tests ended that were run again, and why others were not."""

    passed: list[list[pytest.TestReport]] = field(default_factory=list)
    not_run: dict[str, str] = field(default_factory=dict)

    def too_many(self) -> bool:
        return len(self.passed) > UNSTEADY_MAX


# First, so that plug-ins that judge the run see its new exit status.
@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    config = session.config
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    if (
        terminal is None
        or not config.option.rerun_failed
        or hasattr(config, "workerinput")
        or exitstatus != pytest.ExitCode.TESTS_FAILED
    ):
        return
    if workers := config.pluginmanager.get_plugin("dsession"):
        # Ends the workers now: what is run again runs alone.
        workers.pytest_sessionfinish()
    config.stash[_RERUNS] = reruns = _Reruns()
    failures = [*terminal.stats.get("failed", []), *terminal.stats.get("error", [])]
    candidates = _candidates(failures, reruns)
    deadline = time.monotonic() + RERUN_SECONDS_MAX
    for reports in candidates.values():
        seconds_left = deadline - time.monotonic()
        nodeids = list(dict.fromkeys(report.nodeid for report in reports))
        if seconds_left <= 0:
            reruns.not_run.update(dict.fromkeys(nodeids, "no time left for it"))
        elif _passes_alone(config.rootpath, nodeids, seconds_left):
            reruns.passed.append(reports)
            for nodeid in nodeids:
                config.hook.pytest_passed_again(nodeid=nodeid)
    _move_to_unsteady(terminal, [report for reports in reruns.passed for report in reports])
    if reruns.passed and not reruns.too_many() and not _failures_left(terminal):
        session.exitstatus = pytest.ExitCode.OK


def _candidates(
    failures: Iterable[pytest.TestReport | pytest.CollectReport], reruns: _Reruns
) -> dict[str, list[pytest.TestReport]]:
    """Group the failures that are run again: by the process they shared, or by test."""
    known = without_a_fix(KNOWN_FILE)
    groups: dict[str, list[pytest.TestReport]] = {}
    final: dict[str, str] = {}
    for report in failures:
        said = dict(getattr(report, "user_properties", ()))
        if isinstance(report, pytest.CollectReport):
            final[report.nodeid] = "it was not collected"
        elif reason := said.get(_FINAL) or _why_final_by_name(report):
            final[report.nodeid] = str(reason)
        elif report.nodeid.partition("[")[0] in known:
            final[report.nodeid] = f"{KNOWN_FILE.name} lists it without a fix"
        else:
            cause = str(said.get(_DEAD_PROCESS, report.nodeid))
            groups.setdefault(cause, []).append(report)
    reruns.not_run.update(final)
    # A test that failed twice, in itself and in its clean-up, is final if one failure is.
    kept = {
        cause: [report for report in reports if report.nodeid not in final]
        for cause, reports in groups.items()
    }
    return {cause: reports for cause, reports in kept.items() if reports}


def _why_final_by_name(report: pytest.TestReport) -> str:
    """Judge a test whose worker died with it, before it could say anything of the failure."""
    file = report.nodeid.partition("::")[0]
    if file.startswith(_CRASH_TESTS):
        return "a crash test"
    died = report.when not in {"setup", "call", "teardown"}
    # Which tests of the file are property tests is known to the worker only.
    return "a property test" if died and "hypothesis" in (_ROOT / file).read_text() else ""


def _passes_alone(root: Path, nodeids: list[str], seconds: float) -> bool:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *nodeids]
    with subprocess.Popen(
        command,
        cwd=root,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        # So that it can be ended together with what it started.
        start_new_session=True,
    ) as child:
        try:
            return child.wait(seconds) == 0
        except subprocess.TimeoutExpired:
            return False
        finally:
            for ending in (signal.SIGINT, signal.SIGKILL):
                if child.poll() is None:
                    os.killpg(child.pid, ending)
                    with suppress(subprocess.TimeoutExpired):
                        child.wait(_GOODBYE_SECONDS)


def _move_to_unsteady(terminal: pytest.TerminalReporter, reports: list[pytest.TestReport]) -> None:
    if not reports:
        return
    for ended in ("failed", "error"):
        left = [each for each in terminal.stats.pop(ended, []) if each not in reports]
        if left:
            terminal.stats[ended] = left
    # The closing line counts tests, not phases of one.
    by_test = {report.nodeid: report for report in reversed(reports)}
    # Compat: pytest has no public way to add a category to its closing line.
    terminal._add_stats(UNSTEADY, list(by_test.values()))


def _failures_left(terminal: pytest.TerminalReporter) -> bool:
    return any(terminal.stats.get(ended) for ended in ("failed", "error"))


def without_a_fix(known: Path) -> set[str]:
    """Read which tests the list names whose last column, the fix, is empty."""
    rows = [
        [cell.strip() for cell in line.strip().strip("|").split("|")]
        for line in known.read_text().splitlines()
        if line.lstrip().startswith("| `")
    ]
    return {row[0].strip("`").partition("[")[0] for row in rows if not row[-1].strip("- ")}


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    reruns = config.stash.get(_RERUNS, None)
    if reruns is None:
        return
    if reruns.passed:
        terminalreporter.section("unsteady tests: failed, then passed when run again alone")
    for reports in reruns.passed:
        for report in reports:
            terminalreporter.write_sep("_", f"{report.nodeid} ({report.when})")
            report.toterminal(terminalreporter._tw)
            _write_sections(terminalreporter, report.sections)
    for nodeid, reason in reruns.not_run.items():
        terminalreporter.write_line(f"not run again: {nodeid} ({reason})")
    for reports in reruns.passed:
        names = ", ".join(dict.fromkeys(report.nodeid for report in reports))
        terminalreporter.write_line(f"unsteady: {names}; add it to {KNOWN_FILE.name}", yellow=True)
    if reruns.too_many():
        terminalreporter.write_line(
            f"{len(reruns.passed)} unsteady tests fail the run; {UNSTEADY_MAX} are allowed",
            red=True,
        )


def _write_sections(terminal: pytest.TerminalReporter, sections: Iterable[tuple[str, str]]) -> None:
    for name, content in sections:
        terminal.write_sep("-", name)
        terminal.write_line(content.rstrip("\n"))
