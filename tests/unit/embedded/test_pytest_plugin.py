"""The plug-in, used by the tests of other projects."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

import pytest

SAMPLE = Path(__file__).parents[3] / "examples" / "sample_project"
SECONDS_MAX = 120

pytestmark = [pytest.mark.slow, pytest.mark.timeout(SECONDS_MAX + 60)]


def run_tests(folder: Path, *arguments: str, plugins: Sequence[str] = ()) -> str:
    """Run the tests of a project, which must pass without a warning; what pytest printed.

    With `plugins`, only those are loaded beside ours, which is quicker.
    """
    chosen = [f"-p{name}" for name in ("orbitmq.embedded.pytest_plugin", *plugins)]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-pno:cacheprovider", "-W=error", *arguments]
        + (chosen if plugins else ["-o", "asyncio_default_fixture_loop_scope=function"]),
        cwd=folder,
        env=os.environ | ({"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"} if plugins else {}),
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def write_tests(file: Path, source: str) -> None:
    file.write_text(textwrap.dedent(source))


def test_a_sample_project_tests_its_service_with_it() -> None:
    assert "3 passed" in run_tests(SAMPLE)


def test_tests_that_run_side_by_side_do_not_disturb_each_other(tmp_path: Path) -> None:
    write_tests(
        tmp_path / "test_project.py",
        """
        import pytest
        from orbitmq.client import Message

        @pytest.mark.parametrize("number", range(4))
        def test_a_cluster_is_empty_at_first(number, orbitmq_cluster, producer, consumer):
            assert orbitmq_cluster.message_count("orders") == 0
            producer.send(Message("orders", str(number)))
            assert [m.body for m in consumer("orders").poll(20_000)] == [str(number).encode()]
        """,
    )

    assert "4 passed" in run_tests(tmp_path, "--numprocesses=2", plugins=["xdist"])


def test_a_cluster_ends_with_a_failed_test_and_can_be_shared_also_by_coroutines(
    tmp_path: Path,
) -> None:
    write_tests(
        tmp_path / "test_own.py",
        """
        import threading
        import pytest
        from orbitmq.client import Message

        @pytest.mark.xfail(raises=ZeroDivisionError, strict=True)
        def test_fails(orbitmq_cluster, producer, consumer):
            consumer("orders")
            producer.send(Message("orders", 1 // 0))

        def test_nothing_runs_any_more():
            for thread in set(threading.enumerate()) - {threading.main_thread()}:
                thread.join(60)
                assert not thread.is_alive(), thread.name
        """,
    )
    write_tests(
        tmp_path / "test_shared.py",
        """
        import pytest
        from orbitmq.client import Message, aio
        from orbitmq.embedded import Cluster

        @pytest.fixture(scope="module")
        def orbitmq_cluster():
            with Cluster(brokers=2) as cluster:
                yield cluster

        def test_one(orbitmq_cluster, producer):
            producer.send(Message("orders", "one"))

        @pytest.mark.asyncio
        async def test_two(orbitmq_cluster):
            async with aio.Producer("tests", namesrv=orbitmq_cluster.namesrv) as producer:
                await producer.send(Message("orders", "two"))

        def test_both_are_there(orbitmq_cluster, consumer):
            orders = consumer("orders")
            found = set()
            while len(found) < 2:
                found |= {message.body for message in orders.poll(20_000)}
        """,
    )

    loops = ["-o", "asyncio_default_fixture_loop_scope=function"]
    printed = run_tests(tmp_path, *loops, plugins=["pytest_asyncio.plugin"])

    assert "4 passed, 1 xfailed" in printed
