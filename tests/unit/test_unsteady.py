"""Failed tests are run once more: which, and what becomes of the run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unsteady import UNSTEADY_MAX, without_a_fix

PLUGIN = Path(__file__).parents[1] / "unsteady.py"
# Fails the first time in its folder, and passes from then on.
FAILS_ONCE = """
from pathlib import Path

def fail_once(name, failure):
    mark = Path(__file__).with_name(name)
    if not mark.exists():
        mark.touch()
        raise failure
"""


class Project:
    """A folder with tests, run by pytest with the plug-in."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.write(
            "pytest.ini", "[pytest]\naddopts = --import-mode=importlib\npythonpath = tests\n"
        )
        self.write("tests/conftest.py", 'pytest_plugins = ["unsteady"]\n')
        self.write("tests/unsteady.py", PLUGIN.read_text())
        self.write("tests/failing.py", FAILS_ONCE)
        self.write("tests/unsteady.md", "| test | seen | cause | fix |\n|---|---|---|---|\n")

    def write(self, path: str, text: str) -> None:
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / path).write_text(text)

    def run(self, *options: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "pytest", "--rerun-failed", *options, "tests"],
            cwd=self.folder,
            # Every child starts in a fraction of the time without the plug-ins that are installed.
            env={**os.environ, "PYTEST_ADDOPTS": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            capture_output=True,
            text=True,
            timeout=170,
            check=False,
        )


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def closing_line(run: subprocess.CompletedProcess[str]) -> str:
    return run.stdout.splitlines()[-1]


def test_a_test_that_passes_when_run_again_does_not_fail_the_run(project: Project) -> None:
    project.write(
        "tests/test_some.py",
        "import os, signal, pytest\n"
        "from failing import fail_once\n"
        "@pytest.fixture\n"
        "def server(): fail_once('start', OSError('port taken'))\n"
        "def test_fails(): fail_once('call', TimeoutError('took a minute'))\n"
        "def test_errs(server): pass\n"
        "def test_kills_its_worker():\n"
        "    try: fail_once('kill', OSError())\n"
        "    except OSError: os.kill(os.getpid(), signal.SIGKILL)\n"
        "def test_passes(): pass\n",
    )

    run = project.run("-p", "xdist", "-n1")

    assert run.returncode == 0, run.stdout
    assert "1 passed, 3 unsteady in" in closing_line(run)
    assert "took a minute" in run.stdout
    assert "port taken" in run.stdout
    assert "unsteady: tests/test_some.py::test_errs" in run.stdout


def test_a_failure_that_is_the_products_is_final(project: Project) -> None:
    project.write(
        "tests/test_some.py",
        "from failing import fail_once\n"
        "from hypothesis import given, strategies as st\n"
        "def test_open(): fail_once('open', OSError())\n"
        "def test_lost():\n"
        "    received = []\n"
        "    try: fail_once('lost', KeyError())\n"
        "    except KeyError: assert received == ['one']\n"
        "@given(st.just(1))\n"
        "def test_property(x): fail_once('property', OSError())\n"
        "def test_fails_twice(): raise OSError\n"
        "def test_unsteady(): fail_once('unsteady', OSError())\n",
    )
    project.write(
        "tests/crash/test_kill.py",
        "from failing import fail_once\ndef test_kill(): fail_once('kill', OSError())\n",
    )
    project.write("tests/test_broken.py", "raise OSError('not importable')\n")
    project.write(
        "tests/unsteady.md",
        "| test | seen | cause | fix |\n|---|---|---|---|\n"
        "| `tests/test_some.py::test_open` | today | not known yet | |\n",
    )

    run = project.run("--continue-on-collection-errors")

    assert run.returncode == 1
    assert closing_line(run).strip("= ").startswith("5 failed, 1 error, 1 unsteady in"), run.stdout
    for name, reason in {
        "tests/test_some.py::test_lost": "an assertion about messages",
        "tests/test_some.py::test_property": "a property test",
        "tests/test_some.py::test_open": "unsteady.md lists it without a fix",
        "tests/crash/test_kill.py::test_kill": "a crash test",
        "tests/test_broken.py": "it was not collected",
    }.items():
        assert f"not run again: {name} ({reason})" in run.stdout


def test_a_crash_or_property_test_that_kills_its_worker_is_final(project: Project) -> None:
    kill = "import os, signal\ndef {}(): os.kill(os.getpid(), signal.SIGKILL)\n"
    project.write("tests/crash/test_kill.py", kill.format("test_kill"))
    project.write("tests/test_property.py", "import hypothesis\n" + kill.format("test_property"))

    run = project.run("-p", "xdist", "-n1")

    assert run.returncode == 1
    assert "not run again: tests/crash/test_kill.py::test_kill (a crash test)" in run.stdout
    assert "not run again: tests/test_property.py::test_property (a property test)" in run.stdout


def test_tests_that_fail_by_one_dead_process_count_as_one_and_too_many_fail_the_run(
    project: Project,
) -> None:
    project.write(
        "tests/conftest.py",
        "import pytest\n"
        "from unsteady import dead_process\n"
        'pytest_plugins = ["unsteady"]\n'
        "@pytest.hookimpl(wrapper=True)\n"
        "def pytest_runtest_makereport(item):\n"
        "    report = yield\n"
        "    if report.failed and 'shared' in item.nodeid: dead_process(report, 'broker')\n"
        "    return report\n",
    )
    shared = (
        "import pytest\nfrom failing import fail_once\n"
        "@pytest.mark.parametrize('number', range({}))\n"
        "def test_{}(number): fail_once(f'{}-{{number}}', OSError())\n"
    )
    project.write("tests/test_shared.py", shared.format(9, "shared", "shared"))

    together = project.run()

    assert together.returncode == 0, together.stdout
    assert "9 unsteady in" in closing_line(together)

    project.write("tests/test_single.py", shared.format(UNSTEADY_MAX + 1, "one", "one"))

    many = project.run()

    assert many.returncode == 1
    assert "6 unsteady tests fail the run; 5 are allowed" in many.stdout


def test_the_list_says_which_tests_have_no_fix_yet(tmp_path: Path) -> None:
    known = tmp_path / "unsteady.md"
    known.write_text(
        "# Unsteady\n\n| test | seen | cause | fix |\n|---|---|---|---|\n"
        "| `tests/a.py::test_a[x]` | 2026-11-16 | a port | held until bound |\n"
        "| `tests/b.py::test_b[y]` | 2026-11-16 | unknown | - |\n"
    )

    assert without_a_fix(known) == {"tests/b.py::test_b"}
