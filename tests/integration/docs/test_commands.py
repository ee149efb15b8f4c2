"""Every command of the pages runs, against a real `orbitmq up`; output is as it is shown."""

from __future__ import annotations

import io
import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitmq.cli.main import run as run_command_line
from orbitmq.client import Message, Producer, PushConsumer
from tests.integration.docs.pages import (
    PAGES,
    ROOT,
    SHOWN_ADDRESS,
    Command,
    block_commands,
    blocks,
    exit_codes,
    inline_commands,
    shape,
)

BIN = Path(sys.executable).parent
SECONDS_MAX = 150
# What is not run here, each with the reason. A command is left out when it begins so.
NOT_RUN = {
    "make ": "sets up, tests and measures the project: continuous integration runs these itself",
    ".venv/bin/pytest ": "these are the tests",
    ".venv/bin/python -m benchmarks.": "takes minutes; continuous integration runs a short form",
    ".venv/bin/python examples/": "tests/integration/examples runs every example",
    "PYSPARK_PYTHON=": "tests/spark/test_ways_in.py runs the pipeline",
    "pip install ../.. pytest": "tests/unit/embedded/test_pytest_plugin.py tests the project",
    "pytest": "tests/unit/embedded/test_pytest_plugin.py tests the project",
    "mqadmin ": "RocketMQ's own tool: tests/interop/test_broker_mqadmin.py runs it",
    "python3 -m venv ": "test_first_steps.py does",
    ".venv/bin/pip install ": "test_first_steps.py does",
    ".venv/bin/orbitmq ": "test_first_steps.py does",
    "orbitmq up --slaves ": "runs until Ctrl-C: tests/integration/cli/test_up.py",
    "orbitmq store accept-loss ": "wants a damaged store: tests/integration/cli/test_store.py",
    "orbitmq namesrv forget-epoch ": "wants an epoch: tests/integration/cli/test_epochs.py",
    "orbitmq cluster forget ": "wants a missing broker: tests/integration/cli/test_missing_brokers.py",
    "orbitmq topic permit %DLQ%": "wants dead letters: tests/integration/cli/test_dlq.py",
    "orbitmq dlq ": "wants dead letters: tests/integration/cli/test_dlq.py",
    "orbitmq query show ": "wants a query of Spark: tests/integration/cli/test_query.py",
    "orbitmq transaction show ": "wants an open one: tests/integration/cli/test_transaction.py",
    "orbitmq transaction check": "wants an open one: tests/integration/cli/test_transaction.py",
    "orbitmq query forget ": "wants a query of Spark: tests/integration/cli/test_query.py",
    "orbitmq message pending recall ": "wants one: tests/integration/cli/test_pending.py",
    "orbitmq message pending deliver ": "wants one: tests/integration/cli/test_pending.py",
    "orbitmq message trace": "wants a trace: tests/integration/cli/test_message_trace.py",
    "orbitmq lake release ": "wants an archive: tests/integration/cli/test_lake.py",
    "orbitmq broker drain": "wants two brokers: tests/integration/cli/test_broker_drain.py",
    "orbitmq broker promote": "wants a slave: tests/integration/cli/test_broker_promote.py",
    "orbitmq cut ": "wants a log that was cut: tests/integration/cli/test_cut.py",
    "sudo ": "changes the machine: tests/integration/examples/test_deploy.py runs what it starts",
    "/opt/orbitmq/": "wants an installation: tests/integration/examples/test_deploy.py",
    "docker ": "wants Docker: tests/integration/examples/test_deploy.py runs what it starts",
    "rsync ": "wants another machine: tests/integration/replication/test_seeding.py",
    "orbitmq broker seed": "wants a copied log: tests/integration/replication/test_seeding.py",
    "orbitmq audit": "wants Spark and two brokers: tests/spark/pipelines/test_audit.py",
    "orbitmq pipeline ": "wants a pipeline file: tests/spark/pipelines/test_pipelines.py runs the page's",
    "orbitmq replay ": "wants Spark and stored messages: tests/spark/pipelines/test_replay.py",
    "orbitmq sql": "starts Spark: tests/spark/pipelines/test_sql.py, tests/integration/cli/test_sql.py",
    "orbitmq store rebuild ": "wants a stopped broker: tests/integration/cli/test_store.py",
}
# They run until they are told to stop; here they print what they would run with.
SERVERS = {"orbitmq broker", "orbitmq namesrv", "orbitmq filterserver"}
ENDLESS = {"--follow", "--watch"}


def why_not(command: Command) -> str:
    return next((NOT_RUN[begin] for begin in NOT_RUN if command.text.startswith(begin)), "")


def is_server(words: list[str]) -> bool:
    return " ".join(words[:2]) in SERVERS and (len(words) == 2 or words[2].startswith("-"))


class Site:
    """An `orbitmq up` in a folder of its own, and what the pages expect to be there."""

    def __init__(self, folder: Path, lines: list[str]) -> None:
        self.folder = folder
        self.lines = lines
        self.namesrv = lines[0].split()[-1]
        self.metrics = lines[1].split()[-1]
        self.message_id = ""

    def words(self, command: Command) -> list[str]:
        """Give the words of a command, with the addresses and names of this site."""
        text = command.text.replace(SHOWN_ADDRESS, self.namesrv)
        text = text.replace("http://127.0.0.1:5557/metrics", self.metrics)
        places = {"DIR": str(self.folder / "orbitmq-data/broker-a"), "ID": self.message_id}
        words = [places.get(word, word) for word in shlex.split(text)]
        if words[:2] == ["orbitmq", "store"] and len(words) == 3:
            # A text that names the command, without a folder.
            return [*words, "--help"]
        return [*words, "--print"] if is_server(words) and "-p" not in words else words


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    for name in ("broker.conf", "namesrv.conf"):
        (folder / name).write_text("# as RocketMQ's\n")
    # Started as the README does it.
    (folder / ".venv").symlink_to(BIN.parent)
    up = subprocess.Popen(
        [".venv/bin/orbitmq", "up", "--namesrv-port=0", "--broker-port=0", "--metrics-port=0"],
        cwd=folder,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert up.stdout is not None
        lines = [up.stdout.readline()]
        while lines[-1] and not lines[-1].startswith("stop with"):
            lines.append(up.stdout.readline())
        site = Site(folder, lines)
        received = threading.Event()
        consumer = PushConsumer(
            "billing",
            on_message=lambda _: received.set(),
            consume_from="first",
            namesrv=site.namesrv,
        )
        consumer.subscribe("orders")
        with Producer("shop", namesrv=site.namesrv) as producer, consumer:
            sent = producer.send(Message("orders", "a first one", tags="paid", keys="k1"))
            site.message_id = sent.offset_message_id
            # The commands that ask for it find it at work.
            assert received.wait(SECONDS_MAX)
            yield site
    finally:
        up.send_signal(signal.SIGINT)
        assert up.wait(SECONDS_MAX) == 0
        if up.stdout is not None:
            up.stdout.close()


@pytest.fixture
def environment(site: Site, tmp_path: Path) -> dict[str, str]:
    return {
        **os.environ,
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "NAMESRV_ADDR": site.namesrv,
        "COLUMNS": "200",
    }


def run_process(words: list[str], folder: Path, environment: dict[str, str]) -> str:
    ran = subprocess.run(
        words,
        cwd=folder,
        env=environment,
        input="y\n",
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def run_for_a_moment(words: list[str], folder: Path, environment: dict[str, str]) -> None:
    """Run a command that never ends until it prints something, then end it as a user does."""
    running = subprocess.Popen(words, cwd=folder, env=environment, stdout=subprocess.PIPE)
    with running:
        assert running.stdout is not None
        assert running.stdout.read(1)
        running.send_signal(signal.SIGINT)
        running.communicate(timeout=SECONDS_MAX)
    assert running.returncode == 130


def run_here(
    words: list[str],
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    *,
    answer: str = "y",
) -> int:
    """Run our command in this process, which is quicker; its exit code."""
    for name in ("HOME", "NAMESRV_ADDR"):
        monkeypatch.setenv(name, environment[name])
    monkeypatch.setattr(sys, "argv", words)
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{answer}\n"))
    with pytest.raises(SystemExit) as ended:
        run_command_line()
    return int(ended.value.code or 0)


def test_every_block_says_its_language() -> None:
    known = {
        "console",
        "go",
        "java",
        "json",
        "properties",
        "python",
        "sh",
        "sql",
        "text",
        "toml",
        "yaml",
    }

    assert [str(block) for block in blocks() if block.language not in known] == []


def test_what_is_not_run_is_still_on_a_page() -> None:
    shown = [command.text for command in (*block_commands(), *inline_commands())]

    assert [begin for begin in NOT_RUN if not any(text.startswith(begin) for text in shown)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_commands_of_a_page_run_in_their_order(
    page: Path,
    site: Site,
    environment: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    subtests: pytest.Subtests,
) -> None:
    monkeypatch.chdir(site.folder)
    for command in (*block_commands([page]), *inline_commands([page])):
        if why_not(command):
            continue
        words = site.words(command)
        with subtests.test(str(command)), monkeypatch.context() as patched:
            if ENDLESS & set(words):
                run_for_a_moment(words, site.folder, environment)
                continue
            if words[0] == "orbitmq":
                assert run_here(words, patched, environment) == 0
                printed = capsys.readouterr().out
            else:
                printed = run_process(words, site.folder, environment)
            if command.shown:
                assert shape(printed.splitlines()) == shape(command.shown)


def test_exit_codes_are_as_promised(
    site: Site,
    environment: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    subtests: pytest.Subtests,
) -> None:
    promised = list(exit_codes(ROOT / "docs" / "command-line.md"))

    for code, command in promised:
        with subtests.test(str(command)), monkeypatch.context() as patched:
            assert run_here(site.words(command), patched, environment, answer="n") == code
    assert [code for code, _ in promised] == [0, 1, 2, 3, 4, 5]


def test_the_readme_shows_what_up_prints(site: Site) -> None:
    (shown,) = (
        block for block in blocks([ROOT / "README.md"]) if block.code.startswith("name server")
    )

    assert shape(site.lines) == shape(shown.code.splitlines())
