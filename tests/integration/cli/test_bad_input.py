"""What commands say to typos, to names that are not there, and without a cluster."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from orbitmq.cli import main
from orbitmq.embedded import Cluster
from orbitmq.errors import CommandError
from tests.integration.cli.conftest import Run

NOBODY = "127.0.0.1:1"

# A command of each noun that asks a cluster.
ASKING = [
    "topic list",
    "topic show orders",
    "topic traffic",
    "group list",
    "group lag billing",
    "group producers g orders",
    "message send orders text",
    "message tail orders",
    "message show 7F00000100002A9F0000000000000000",
    "message probe orders",
    "offset show billing orders",
    "offset reset billing orders --to latest",
    "cluster list",
    "broker status broker-a",
    "broker clean broker-a --yes",
    "namesrv config",
    "kv list namespace",
    "clusterList",
]


@pytest.mark.parametrize("line", ASKING)
def test_without_a_cluster_it_says_what_was_tried(run: Run, line: str) -> None:
    result = run(*line.split(), "-n", NOBODY, code=3)

    assert NOBODY in str(result.exception)


@pytest.mark.parametrize("line", ["topic list", "message send orders text"])
def test_without_a_cluster_it_says_how_to_start_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], line: str
) -> None:
    monkeypatch.setattr("sys.argv", ["orbitmq", *line.split(), "-n", NOBODY])

    with pytest.raises(SystemExit) as left:
        main.run()

    assert left.value.code == 3
    said = capsys.readouterr().err
    assert said.splitlines() == [
        f"orbitmq: no name server answers: {NOBODY}: Connection refused",
        "give --namesrv HOST:PORT, or start a cluster here with: orbitmq up",
    ]


@pytest.mark.parametrize(
    ("typo", "meant"),
    [
        ("topc", "topic"),
        ("grroup", "group"),
        ("mesxage", "message"),
        ("offsset", "offset"),
        ("clustr", "cluster"),
        ("brokr", "broker"),
        ("namesvr", "namesrv"),
        ("kvs", "kv"),
        ("stor", "store"),
        ("topicStats", "topicStatus"),
        ("consumerProgxress", "consumerProgress"),
    ],
)
def test_a_typo_in_a_noun_gets_the_nearest(run: Run, typo: str, meant: str) -> None:
    with pytest.raises(CommandError, match=rf"did you mean {meant}\?"):
        run(typo, "list")


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("topic lst", "list"),
        ("group lagg", "lag"),
        ("message snd", "send"),
        ("offset rest", "reset"),
        ("cluster lis", "list"),
        ("broker stxatus", "status"),
        ("namesrv configg", "config"),
        ("kv gett", "get"),
        ("store veriffy", "verify"),
        ("topic list --namsrv x", "--namesrv"),
        ("group lag g --wach", "--watch"),
        ("message tail t --followw", "--follow"),
        ("offset reset g t --dry-rum", "--dry-run"),
        ("cluster list --jsn", "--json"),
        ("broker clean b --yess", "--yes"),
        ("namesrv config --jsn", "--json"),
        ("kv delete n k --yess", "--yes"),
    ],
)
def test_a_typo_in_a_verb_or_an_option_gets_the_nearest(run: Run, line: str, meant: str) -> None:
    output = run(*line.split(), code=2).output

    assert re.search(rf"(Did you mean '|Possible options: ){meant}\b", output)


@pytest.fixture(scope="module")
def _stock(cluster: Cluster) -> None:
    for line in ("topic create payments -b broker-a", "group create accountants"):
        words = [*line.split(), "-n", cluster.namesrv]
        assert CliRunner().invoke(main.command_for(words), words).exit_code == 0


@pytest.fixture
def stocked(run: Run, _stock: None) -> Run:
    """Runs commands against a cluster with a topic and a group that typos can be near to."""
    return run


# By what was meant: a topic, a group, a broker, a cluster.
TYPOS = {
    "payments": [
        "topic show paymnts",
        "topic stats paymnts",
        "topic groups paymnts",
        "topic delete paymnts --yes",
        "topic permit paymnts r",
        "topic traffic paymnts",
        "topic allocation paymnts a",
        "group lag accountants -t paymnts",
        "group forbid accountants paymnts --yes",
        "group producers g paymnts",
        "message tail paymnts",
        "message find paymnts --key k",
        "message find paymnts --from 1h",
        "message at paymnts broker-a 0 0",
        "message show 00000000000000000000000000000000 -t paymnts",
        "offset show accountants paymnts",
        "offset reset accountants paymnts --to latest",
        "offset set accountants paymnts broker-a 0 0 --yes",
        "offset clone accountants accountants paymnts --yes",
        "topicStatus -t paymnts",
    ],
    "accountants": [
        "group show acountants",
        "group lag acountants",
        "group members acountants",
        "group running acountants",
        "group delete acountants --yes",
        "group forbid acountants payments --yes",
        "group allow acountants payments",
        "group mode acountants payments pull",
        "message consume 7F00000100002A9F0000000000000000 acountants",
        "offset show acountants payments",
        "offset reset acountants payments --to latest",
        "offset set acountants payments broker-a 0 0 --yes",
        "offset clone acountants others payments --yes",
        "consumerProgress -g acountants",
    ],
    "broker-a": [
        "topic create t -b broker-aa",
        "group create g -b broker-aa",
        "message at payments broker-aa 0 0",
        "message find payments --from 1h --broker broker-aa",
        "offset set accountants payments broker-aa 0 0 --yes",
        "broker status broker-aa",
        "broker config broker-aa",
        "broker set broker-aa maxMessageSize=65536 --yes",
        "broker topics broker-aa",
        "broker producers broker-aa",
        "broker lag broker-aa",
        "broker clean broker-aa --yes",
        "broker forbid-writing broker-aa --yes",
        "broker allow-writing broker-aa",
        "brokerStatus -b broker-aa",
    ],
    "DefaultCluster": [
        "topic create t -c DefaultClustr",
        "group create g -c DefaultClustr",
    ],
}


@pytest.mark.parametrize(
    ("line", "meant"), [(line, meant) for meant, lines in TYPOS.items() for line in lines]
)
def test_a_typo_in_a_name_gets_the_nearest(stocked: Run, line: str, meant: str) -> None:
    result = stocked(*line.split(), code=4)

    assert f"did you mean {meant}?" in str(result.exception)


def test_a_copy_is_not_sent_to_a_topic_that_does_not_exist(stocked: Run) -> None:
    sent = json.loads(stocked("message", "send", "payments", "paid", "--json").stdout)

    refused = stocked("message", "resend", sent["message_id"], "-t", "payments", "--to", "paymets",
                      code=4)  # fmt: skip

    assert "there is no topic 'paymets' (did you mean payments?" in str(refused.exception)
    assert "orbitmq topic create paymets" in str(refused.exception)
    assert "paymets" not in stocked("topic", "list").stdout


def test_groups_of_the_system_are_not_offered(run: Run) -> None:
    shown = str(run("group", "lag", "nosuch", code=4).exception)

    assert "TOOLS_CONSUMER" not in shown
    assert "CID_" not in shown


def test_a_typo_in_an_option_of_a_server_gets_the_nearest(run: Run) -> None:
    for noun in ("broker", "namesrv"):
        target = ["broker-a"] if noun == "broker" else []
        shown = str(run(noun, "config", *target, "listenPrt", code=1).exception)
        assert "did you mean listenPort?" in shown


def test_name_servers_may_be_a_list_in_the_config_file(
    run: Run, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("NAMESRV_ADDR")
    (tmp_path / "orbitmq.toml").write_text(f'namesrv = ["{cluster.namesrv}"]\n')

    assert "broker-a" in run("cluster", "list").stdout
