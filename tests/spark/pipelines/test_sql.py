"""`orbitmq sql` as a user runs it: one Spark in the background serves all these tests."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from orbitmq.client import Message
from orbitmq.pipelines.queries.background import BackgroundSpark
from orbitmq.pipelines.queries.server_state import ServerState, StateFolder, runtime_folder
from tests.spark.topics import Topics
from tests.waiting import wait_until

SECONDS_MAX = 300
COMMAND = [sys.executable, "-m", "orbitmq.cli.main", "sql"]
# Longer than anybody waits.
ENDLESS = "SELECT sum(a.id % 7) FROM range(10000000000) a CROSS JOIN range(10000) b"

# What is said of them.
MISTAKES = {
    "SELECT * FROM nothing_alike": "there is no topic",
    "SELECT nothing FROM {orders}": "`nothing` cannot be resolved",
    "SELECT get_json_object(body, '$.id') FROM {orders}": "makes a body a text",
    "SELECT interval '1' month": "makes it a text",
}


@dataclass(frozen=True)
class Site:
    """A user with a cluster, who has private folders."""

    folder: Path
    namesrv: str

    @property
    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "NAMESRV_ADDR": self.namesrv,
            "XDG_RUNTIME_DIR": str(self.folder / "run"),
            "XDG_STATE_HOME": str(self.folder / "state"),
            "TERM": "xterm",
            "PROMPT_TOOLKIT_NO_CPR": "1",
        }

    @property
    def state(self) -> StateFolder:
        return StateFolder(runtime_folder(self.environment))

    @property
    def server(self) -> ServerState:
        """The Spark in the background, started if there is none."""
        if self.state.running() is None:
            self.run("SELECT 1 AS x")
        found = self.state.running()
        assert found is not None
        return found

    @contextmanager
    def started(self, *words: str) -> Iterator[subprocess.Popen[str]]:
        with subprocess.Popen(
            [*COMMAND, *words],
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    def run(self, *words: str, code: int = 0, typed: str = "") -> tuple[str, str]:
        with self.started(*words) as process:
            out, errors = process.communicate(typed, timeout=SECONDS_MAX)
        assert process.returncode == code, out + errors
        return out, errors


@pytest.fixture(scope="module")
def site(
    java_home: Path, tmp_path_factory: pytest.TempPathFactory, topics: Topics
) -> Iterator[Site]:
    assert java_home.is_dir()
    folder = tmp_path_factory.mktemp("sql")
    site = Site(folder, topics.cluster.namesrv)
    yield site
    BackgroundSpark(state=site.state).stop()
    assert not site.state.is_held()


@pytest.fixture(scope="module")
def orders(topics: Topics) -> str:
    """A topic of ten orders as JSON, and one message that is no text."""
    topic = topics.create(queues=1)
    queue = topics.queues(topic)[0]
    paid = [
        Message(topic, json.dumps({"id": number}), tags="paid" if number % 2 else "new", keys="k")
        for number in range(10)
    ]
    topics.send_messages([*paid, Message(topic, b"\xff\x00")], queue=queue)
    return f"`{topic}`"


def test_two_first_calls_start_one_spark(site: Site, orders: str) -> None:
    query = f"SELECT tags, count(*) AS n FROM {orders} GROUP BY tags ORDER BY tags"
    BackgroundSpark(state=site.state).stop()

    with site.started(query, "-o", "csv") as one, site.started(query, "-o", "csv") as other:
        printed = [each.communicate(timeout=SECONDS_MAX) for each in (one, other)]

    assert [out for out, _ in printed] == ["tags,n\n,1\nnew,5\npaid,5\n"] * 2
    assert sum("Spark started in the background in" in errors for _, errors in printed) == 1
    assert f"127.0.0.1:{site.server.port}" in site.run("--status")[0]


def test_rows_are_exact_and_conditions_count(site: Site, orders: str) -> None:
    out, _ = site.run(
        f"SELECT queueOffset, body, get_json_object(CAST(body AS STRING), '$.id') AS id, bornHost "
        f"FROM {orders} WHERE queueOffset >= 9 ORDER BY queueOffset",
        "--output",
        "json",
    )

    last, odd = map(json.loads, out.splitlines())
    assert (last["queueOffset"], last["body"], last["id"]) == (9, '{"id": 9}', "9")
    assert (odd["body"], odd["id"]) == ({"base64": "/wA="}, None)
    assert last["bornHost"].startswith("127.0.0.1:")


def test_topics_and_system_tables_are_joined(site: Site, orders: str, topics: Topics) -> None:
    empty, name = topics.create(), orders.strip("`")
    sql = f"""
        SELECT t.messages, count(*) AS n, system.topics.permission
        FROM {orders} JOIN system.topics USING (topic, brokerName)
            JOIN system.topics t USING (topic, brokerName)
        GROUP BY ALL;
        SELECT count(*) AS n FROM system.dlq WHERE `group` = 'nobody';
        SELECT count(*) AS n FROM `{empty}`;
        SELECT t.topic FROM system.topics t WHERE t.topic = '{name}' AND messages > 0;
        SELECT parse_json('[1]') AS v, CAST(1.10 AS DECIMAL(9, 2)) AS d, '' AS e, NULL AS z"""

    out, _ = site.run("-o", "json", typed=sql)

    assert [json.loads(line) for line in out.splitlines()] == [
        {"messages": 11, "n": 11, "permission": "rw"},
        {"n": 0},
        {"n": 0},
        {"topic": name},
        {"v": [1], "d": "1.10", "e": "", "z": None},
    ]


def test_an_answer_that_is_cut_and_one_that_fails_say_so(site: Site, orders: str) -> None:
    sql = f"SELECT queueOffset FROM {orders}; SELECT 1 / (queueOffset - 3) FROM {orders}"

    out, errors = site.run("--limit", "4", code=1, typed=sql)

    # The first lines may be about the start of Spark.
    *_, said, refused = errors.splitlines()
    assert len(out.splitlines()) == 5
    assert "the first 4 rows; there are more" in said
    # In one sentence, without frames of Java or Python.
    assert refused.startswith("orbitmq: [DIVIDE_BY_ZERO]")


def test_only_who_has_the_token_may_connect(site: Site) -> None:
    address = f"sc://localhost:{site.server.port}"
    token = site.server.token

    right, _ = site.run("SELECT 1 AS x", "-o", "csv", "--remote", f"{address}/;token={token}")
    _, wrong = site.run("SELECT 1 AS x", "--remote", f"{address}/;token=guessed", code=1)

    assert right == "x\n1\n"
    assert "Invalid authentication token" in wrong
    files = [file for file in site.state.folder.iterdir() if file.is_file()]
    assert stat.S_IMODE(site.state.folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((site.state.folder / "server.json").stat().st_mode) == 0o600
    assert not any(token in file.read_text() for file in files if file.name != "server.json")


def test_an_interrupt_cancels_the_query_and_not_spark(site: Site) -> None:
    before = site.server
    with site.started("-o", "csv") as running:
        assert running.stdin is not None
        assert running.stdout is not None
        running.stdin.write(f"SELECT 1 AS begun;\n{ENDLESS};\n")
        running.stdin.close()
        assert [running.stdout.readline(), running.stdout.readline()] == ["begun\n", "1\n"]

        running.send_signal(signal.SIGINT)

        assert running.wait(SECONDS_MAX) == 130
    # It would wait for the cores.
    assert site.run("SELECT count(*) AS n FROM range(10)", "-o", "csv")[0] == "n\n10\n"
    assert site.server == before


def test_the_shell_in_a_terminal(site: Site, orders: str) -> None:
    process, terminal = pty.fork()
    if process == 0:
        os.execve(sys.executable, COMMAND, site.environment)
    seen = bytearray()

    def until(text: str) -> None:
        """Read what the shell shows until a text comes, and forget it."""
        while text.encode() not in seen:
            assert select.select([terminal], [], [], SECONDS_MAX)[0], bytes(seen)
            seen.extend(os.read(terminal, 65536))
        del seen[: seen.index(text.encode()) + len(text)]

    try:
        until("orbitmq>")
        os.write(terminal, b"\\d system.lag\r")
        until("committedOffset")
        until("orbitmq>")
        os.write(terminal, f"SELECT count(*) + 31 AS n\rFROM {orders};\r".encode())
        until("42")
        until("orbitmq>")
        for sql, said in MISTAKES.items():
            os.write(terminal, f"{sql.format(orders=orders)};\r".encode())
            until(said)
            until("orbitmq>")
        os.write(terminal, f"SELECT 'be' || 'gun' AS b; {ENDLESS};\r".encode())
        until("begun")
        os.kill(process, signal.SIGINT)
        until("cancelled")
        until("orbitmq>")
        os.write(terminal, b"\x04")
        assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0
    finally:
        os.close(terminal)
    history = site.folder / "state/orbitmq/sql_history"
    assert "+FROM" in history.read_text()
    assert stat.S_IMODE(history.stat().st_mode) == 0o600


def test_spark_that_dies_is_replaced_and_ends_when_its_client_is_killed(site: Site) -> None:
    before = site.server
    with site.started("--idle", "10s", "-o", "csv", "--watch", "0.5", "SELECT 1 AS x") as watching:
        assert watching.stdout is not None
        assert watching.stdout.readline() == "x\n"

        os.kill(before.pid, signal.SIGKILL)

        wait_until(
            lambda: site.state.running() not in (None, before),
            timeout_s=SECONDS_MAX,
            what="another Spark",
        )
        for _ in range(20):
            assert watching.stdout.readline() in {"x\n", "1\n"}
        watching.kill()

    wait_until(lambda: not site.state.is_held(), timeout_s=SECONDS_MAX, what="its end")
    assert not (site.state.folder / "server.json").exists()
