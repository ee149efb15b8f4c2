"""What shells are offered when Tab is pressed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from orbitmq.cli.main import NOUNS
from orbitmq.embedded import Cluster

COMMAND = [sys.executable, "-m", "orbitmq.cli.main"]
SECONDS_MAX = 150


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(in_memory=True) as cluster:
        cluster.create_topic("orders")
        cluster.create_topic("ordinary-letters")
        cluster.create_topic("parcels")
        yield cluster


def offered(line: str, *, shell: str = "bash", namesrv: str = "127.0.0.1:1") -> str:
    """What a shell is offered at the end of a line."""
    asked = {
        "bash": {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))},
        "zsh": {"_TYPER_COMPLETE_ARGS": line},
    }[shell]
    # The name that the installed script asks by, and more time than whoever presses Tab has.
    program = """
import sys
from orbitmq.cli import completion
from orbitmq.cli.main import run
sys.argv[0] = "orbitmq"
completion._TIMEOUT_MS = 60_000
run()
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={
            **os.environ,
            **asked,
            "_ORBITMQ_COMPLETE": f"complete_{shell}",
            "NAMESRV_ADDR": namesrv,
        },
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.stderr == ""
    return done.stdout


def test_nouns_and_their_commands_are_offered() -> None:
    assert set(offered("orbitmq ").split()) == set(NOUNS)
    zsh = offered("orbitmq group l", shell="zsh")
    assert '"list"' in zsh
    assert '"lag"' in zsh
    assert '"members"' not in zsh


def test_topics_and_groups_of_the_cluster_are_offered(cluster: Cluster) -> None:
    assert offered("orbitmq topic stats ord", namesrv=cluster.namesrv).split() == [
        "orders",
        "ordinary-letters",
    ]
    assert "TOOLS_CONSUMER" in offered("orbitmq group lag TOOLS", namesrv=cluster.namesrv)


def test_nothing_is_offered_and_nothing_said_where_no_cluster_answers() -> None:
    assert offered("orbitmq topic stats ord").strip() == ""


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_the_script_for_a_shell_is_shown(shell: str) -> None:
    shown = subprocess.run(
        [*COMMAND, "--show-completion", shell],
        env={**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"},
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )

    assert shown.returncode == 0, shown.stderr
    assert f"complete_{shell}" in shown.stdout
