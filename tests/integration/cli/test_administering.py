"""Commands that administer a cluster, run as a user types them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from orbitmq.cli.main import command_for, exit_code_of
from orbitmq.cli.mqadmin_names import ALIASES, MISSING, as_our_command
from orbitmq.embedded import Cluster
from orbitmq.errors import OrbitError, SettingsError

Run = Callable[..., Result]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=2) as cluster:
        yield cluster


@pytest.fixture
def run(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Runs a command against the cluster; what it prints is in the result."""
    monkeypatch.setenv("NAMESRV_ADDR", cluster.namesrv)
    monkeypatch.setenv("ORBITMQ_CONFIG", str(tmp_path / "orbitmq.toml"))
    command = command_for([])

    def run(*words: str, code: int = 0, typed: str | None = None) -> Result:
        result = CliRunner().invoke(command, as_our_command(list(words)), input=typed)
        if isinstance(result.exception, OrbitError):
            assert exit_code_of(result.exception) == code, result.exception
        else:
            assert result.exit_code == code, result.output or result.exception
        return result

    return run


def shown(result: Result) -> object:
    """What --json printed."""
    return json.loads(result.stdout)


def test_a_topic_is_created_described_and_deleted(run: Run) -> None:
    assert "3 queues on broker-a, broker-b" in run("topic", "create", "orders", "-q", "3").stdout
    run("message", "send", "orders", "hello")

    listed = shown(run("topic", "list", "--json"))
    assert isinstance(listed, list)
    assert {"topic": "orders"} in listed
    assert {"topic": "TBW102"} not in listed
    assert {"topic": "broker-a"} not in listed
    assert "TBW102" in run("topic", "list", "--all").stdout
    described = shown(run("topic", "show", "orders", "--json"))
    assert isinstance(described, list)
    assert [(row["broker"], row["read_queues"]) for row in described] == [
        ("broker-a", 3),
        ("broker-b", 3),
    ]
    assert "max offset" in run("topic", "stats", "orders").stdout
    assert "no group consumes it" in run("topic", "groups", "orders").stdout
    assert "nothing was done" in run("topic", "delete", "orders", code=5, typed="n\n").stdout
    assert "its 1 messages" in run("topic", "delete", "orders", typed="y\n").stdout
    assert "orders" not in run("topic", "list").stdout


def test_messages_are_sent_followed_and_found(run: Run) -> None:
    run("topic", "create", "letters", "-q", "1", "--broker", "broker-a")
    sent = shown(run("message", "send", "letters", "héllo", "--keys", "k1,k2", "--tags", "t",
                     "-p", "colour=red", "--json"))  # fmt: skip
    assert isinstance(sent, dict)
    run("message", "send", "letters", "-", typed="two\nthree\n")

    tailed = run("message", "tail", "letters").stdout
    assert [line.split()[-1] for line in tailed.splitlines()] == ["héllo", "two", "three"]
    assert "two" not in run("message", "tail", "letters", "--tags", "t").stdout
    found = run("message", "find", "letters", "--key", "k2").stdout
    assert "héllo" in found
    assert "three" in run("message", "find", "letters", "--from", "1h").stdout
    by_id = run("message", "show", sent["message_id"], "-t", "letters", "--json")
    content = shown(by_id)
    assert isinstance(content, dict)
    assert content["properties"]["colour"] == "red"
    assert "héllo" in run("message", "at", "letters", "broker-a", "0", "0").stdout
    run("message", "find", "letters", "--key", "none", code=4)
    run("message", "at", "letters", "broker-a", "0", "9", code=4)
    run("message", "send", "letters", "x", "--queue", "1", code=1)
    run("message", "find", "letters", code=1)


def test_groups_lag_and_offsets(run: Run) -> None:
    run("topic", "create", "jobs", "-q", "1", "--broker", "broker-b")
    for number in range(3):
        run("message", "send", "jobs", str(number))
    run("group", "create", "workers", "--retries-max", "4")

    assert "workers" in run("group", "list").stdout
    settings = shown(run("group", "show", "workers", "--json"))
    assert isinstance(settings, dict)
    assert settings["retries_max"] == 4
    assert "nobody consumes" in run("group", "members", "workers").stdout
    preview = run("offset", "reset", "workers", "jobs", "--to", "latest", "--dry-run", "--json")
    assert shown(preview) == [
        {
            "broker": "broker-b",
            "queue": 0,
            "committed": None,
            "target": 3,
            "consumed_again": 0,
            "skipped": 0,
        }
    ]
    run("offset", "reset", "workers", "jobs", "--to", "latest", "--yes")
    run("offset", "reset", "workers", "jobs", "--to", "earliest", code=5, typed="n\n")
    run("offset", "reset", "workers", "jobs", "--to", "earliest", typed="y\n")
    lag = shown(run("group", "lag", "workers", "-t", "jobs", "--json"))
    assert isinstance(lag, dict)
    assert lag["lag"] == 3
    assert "total" in run("group", "lag", "workers", "-t", "jobs").stdout
    run("group", "create", "others")
    run("offset", "clone", "workers", "others", "jobs", "--yes")
    assert "committed" in run("offset", "show", "others", "jobs").stdout
    run("group", "delete", "others", "--yes")
    run("group", "show", "others", code=4)


def test_brokers_are_listed_read_changed_and_cleaned(run: Run) -> None:
    listed = shown(run("cluster", "list", "--json"))
    assert isinstance(listed, list)
    assert [row["broker"] for row in listed] == ["broker-a", "broker-b"]
    (address,) = {row["address"] for row in listed if row["broker"] == "broker-b"}
    (line,) = (line for line in run("cluster", "list").stdout.splitlines() if "broker-b" in line)
    assert address in line  # a row is one line where it goes to a pipe
    assert "broker-b" in run("broker", "list").stdout
    assert "brokerVersionDesc" in run("broker", "status", "broker-a").stdout
    run("broker", "set", "broker-a", "maxMessageSize=65536", "--yes")
    assert shown(run("broker", "config", "broker-a", "maxMessageSize", "--json")) == {
        "maxMessageSize": "65536"
    }
    assert "TBW102" in run("broker", "topics", "broker-a").stdout
    run("broker", "clean", "broker-a", "--yes")
    run("broker", "forbid-writing", "broker-a", "--yes")
    run("broker", "allow-writing", "broker-a")
    run("broker", "status", "broker-c", code=4)
    run("broker", "set", "broker-a", "maxMessageLimit=1", "--yes", code=1)


def test_key_values(run: Run) -> None:
    run("kv", "put", "colours", "sky", "blue")

    assert run("kv", "get", "colours", "sky").stdout == "blue\n"
    assert shown(run("kv", "list", "colours", "--json")) == [{"key": "sky", "value": "blue"}]
    run("kv", "delete", "colours", "sky", "--yes")
    run("kv", "get", "colours", "sky", code=1)


def test_a_typo_gets_the_nearest_name(run: Run) -> None:
    run("topic", "create", "payments", "--broker", "broker-a")

    assert "did you mean payments?" in str(run("topic", "show", "paymnts", code=4).exception)
    assert "did you mean broker-a?" in str(run("broker", "status", "brokr-a", code=4).exception)
    assert "'topic'" in run("topc", code=2).output


def test_no_cluster_is_told_with_what_was_tried(run: Run) -> None:
    result = run("topic", "list", "-n", "127.0.0.1:1", code=3)

    assert "127.0.0.1:1" in str(result.exception)


def test_the_config_file_of_the_user_is_read(
    run: Run, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("NAMESRV_ADDR")
    (tmp_path / "orbitmq.toml").write_text(f'namesrv = "{cluster.namesrv}"\n')
    assert "broker-a" in run("cluster", "list").stdout

    (tmp_path / "orbitmq.toml").write_text('namsrv = "x"\n')
    assert "did you mean namesrv?" in str(run("cluster", "list", code=1).exception)
    (tmp_path / "orbitmq.toml").write_text("namesrv\n")
    assert "cannot be read" in str(run("cluster", "list", code=1).exception)


def test_names_of_mqadmin_do_what_ours_do(run: Run) -> None:
    run("updateTopic", "-t", "from-mqadmin", "-c", "DefaultCluster", "-r", "2", "-w", "2")

    assert (
        run("topicRoute", "-t", "from-mqadmin").stdout
        == run("topic", "show", "from-mqadmin").stdout
    )
    run("updateKvConfig", "-s", "ns", "-k", "key", "-v", "value")
    run("sendMessage", "-t", "from-mqadmin", "-p", "body", "-k", "key")
    assert "body" in run("queryMsgByKey", "-t", "from-mqadmin", "-k", "key").stdout
    run("deleteTopic", "-t", "from-mqadmin", "-c", "DefaultCluster")


def test_what_mqadmin_has_and_we_have_not_is_said() -> None:
    with pytest.raises(SettingsError, match="replication is not built"):
        as_our_command(["haStatus"])
    with pytest.raises(SettingsError, match="topicStatus needs -t"):
        as_our_command(["topicStatus"])
    assert not ALIASES.keys() & MISSING.keys()
