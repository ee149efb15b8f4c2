"""Commands that administer a cluster, run as a user types them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from queue import Queue

import pytest
from typer.testing import Result

from orbitmq.client import Message, Producer, PushConsumer
from orbitmq.embedded import Cluster
from tests.integration.cli.conftest import Run
from tests.waiting import wait_until


def shown(result: Result) -> object:
    """What --json printed."""
    return json.loads(result.stdout)


def rows(result: Result) -> list[dict[str, object]]:
    """The rows that --json printed."""
    found = json.loads(result.stdout)
    assert isinstance(found, list)
    return found


def test_a_topic_is_created_described_and_deleted(run: Run) -> None:
    assert "3 queues on broker-a, broker-b" in run("topic", "create", "orders", "-q", "3").stdout
    one_queue = run("topic", "create", "narrow", "-q", "1", "-b", "broker-a").stdout
    assert one_queue == "topic narrow has 1 queue on broker-a\n"
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
    assert "its 1 message?" in run("topic", "delete", "orders", typed="y\n").stdout
    assert "orders" not in run("topic", "list").stdout


def test_a_message_is_sent_again_without_its_delay(run: Run) -> None:
    run("topic", "create", "notices", "-q", "1", "--broker", "broker-a")
    run("topic", "create", "copies", "-q", "1", "--broker", "broker-a")
    sent = shown(run("message", "send", "notices", "late", "--keys", "k", "--delay-level", "1",
                     "-p", "colour=red", "--json"))  # fmt: skip
    assert isinstance(sent, dict)
    wait_until(
        lambda: "late" in run("message", "tail", "notices").stdout,
        timeout_s=60,
        what="the delay is over",
    )

    again = shown(run("message", "resend", sent["message_id"], "-t", "notices", "--json"))
    copied = shown(run("message", "resend", sent["message_id"], "-t", "notices", "--to", "copies",
                       "--json"))  # fmt: skip

    # It is in its queue at once.
    assert isinstance(again, dict)
    assert isinstance(copied, dict)
    (copy,) = rows(run("message", "at", "notices", "broker-a", "0", "1", "--json"))
    (other,) = rows(run("message", "at", "copies", "broker-a", "0", "0", "--json"))
    for message, result in ((copy, again), (other, copied)):
        assert (message["body"], message["message_id"]) == ("late", result["message_id"])
        properties = message["properties"]
        assert isinstance(properties, dict)
        assert properties["colour"] == "red"
        assert "DELAY" not in properties
    assert again["message_id"] != sent["message_id"]


def test_a_broker_without_slaves_says_so(run: Run) -> None:
    assert "no slaves" in run("broker", "slaves", "broker-a").stdout
    assert "no slaves" in run("haStatus", "-c", "DefaultCluster").stdout


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
    (content,) = rows(by_id)
    assert isinstance(content["properties"], dict)
    assert content["properties"]["colour"] == "red"
    bodies = ["héllo", "two", "three"]
    by_time = rows(run("message", "find", "letters", "--from", "1h", "--json"))
    by_place = rows(run("message", "at", "letters", "broker-a", "0", "0", "-c", "3", "--json"))
    lines = run("message", "tail", "letters", "--json").stdout.splitlines()
    assert [row["body"] for row in by_time] == bodies
    assert [row["body"] for row in by_place] == bodies
    assert [json.loads(line)["body"] for line in lines] == bodies
    assert rows(run("message", "find", "letters", "--key", "none", "--json", code=4)) == []
    assert "héllo" in run("message", "at", "letters", "broker-a", "0", "0").stdout
    run("message", "find", "letters", "--key", "none", code=4)
    run("message", "at", "letters", "broker-a", "0", "9", code=4)
    run("message", "send", "letters", "x", "--queue", "1", code=1)
    run("message", "find", "letters", code=1)


def test_bodies_are_shown_safely(run: Run) -> None:
    run("topic", "create", "pages", "-q", "1", "--broker", "broker-a")
    run("message", "send", "pages", "a\x1b[2J\nb")
    run("message", "send", "pages", "é" * 2000 + "x" + "é" * 100)

    cleared, long = run("message", "tail", "pages").stdout.splitlines()

    assert cleared.endswith(r" a\x1b[2J\nb")
    assert "é" * 2000 + "x" + "é" * 47 + "… (4201 bytes)" in long


def test_a_topic_gets_on_one_more_broker_the_settings_that_it_has_elsewhere(run: Run) -> None:
    run("topic", "create", "growing", "-q", "3", "--permission", "r", "-b", "broker-a")
    run("topic", "create", "growing", "--attributes", "+message.type=FIFO", "-b", "broker-a")

    said = run("topic", "create", "growing", "--ordered").stdout

    assert "is changed on broker-a" in said
    assert "has 3 queues on broker-b" in said
    described = rows(run("topic", "show", "growing", "--json"))
    settings = ("read_queues", "write_queues", "permission", "ordered", "attributes")
    assert [[row[name] for name in settings] for row in described] == [
        [3, 3, "r", True, "message.type=FIFO"]
    ] * 2


def test_create_changes_only_the_given_settings_of_what_exists(run: Run) -> None:
    run("topic", "create", "wide", "-q", "16")
    run("group", "create", "patient", "--retries-max", "99")

    assert "stays as it is on broker-a, broker-b" in run("topic", "create", "wide").stdout
    run("topic", "create", "wide", "-q", "4", code=5, typed="n\n")
    run("group", "create", "patient", "--no-consuming")
    described = rows(run("topic", "show", "wide", "--json"))
    settings = shown(run("group", "show", "patient", "--json"))

    assert {row["read_queues"] for row in described} == {16}
    assert isinstance(settings, dict)
    assert (settings["retries_max"], settings["may_consume"]) == (99, False)
    run("topic", "create", "wide", "-q", "4", "--yes", "-b", "broker-a")
    described = rows(run("topic", "show", "wide", "--json"))
    assert [row["read_queues"] for row in described] == [4, 16]
    run("topic", "permit", "wide", "r", "-b", "127.0.0.1:1", code=4)


def test_groups_lag_and_offsets(run: Run) -> None:
    run("topic", "create", "jobs", "-q", "1", "--broker", "broker-b")
    for number in range(3):
        run("message", "send", "jobs", str(number))
    run("group", "create", "workers", "--retries-max", "4")

    assert "workers" in run("group", "list").stdout
    settings = shown(run("group", "show", "workers", "--json"))
    assert isinstance(settings, dict)
    assert settings["retries_max"] == 4
    assert "has no members now" in run("group", "members", "workers").stdout
    preview = run("offset", "reset", "workers", "jobs", "--to", "latest", "--dry-run", "--json")
    assert shown(preview) == [
        {
            "broker": "broker-b",
            "queue": 0,
            "committed": None,
            "target": 3,
            "consumed_again": 0,
            "skipped": 3,
        }
    ]
    only_back = run("offset", "reset", "workers", "jobs", "--to", "latest", "--only-back", "--yes")
    assert "no queue would move" in only_back.stdout
    run("offset", "reset", "workers", "jobs", "--to", "0001-01-01", code=1)
    run("offset", "set", "workers", "jobs", "broker-b", "99", "0", "--yes", code=1)
    run("offset", "set", "workers", "jobs", "broker-b", "0", "4", "--yes", code=1)
    (untouched,) = rows(run("offset", "show", "workers", "jobs", "--json"))
    assert untouched["committed"] is None
    run("offset", "reset", "workers", "jobs", "--to", "latest", "--yes")
    run("offset", "reset", "workers", "jobs", "--to", "earliest", code=5, typed="n\n")
    run("offset", "reset", "workers", "jobs", "--to", "earliest", typed="y\n")
    lag = shown(run("group", "lag", "workers", "-t", "jobs", "--json"))
    assert isinstance(lag, dict)
    assert lag["lag"] == 3
    assert "total" in run("group", "lag", "workers", "-t", "jobs").stdout
    behind = rows(run("broker", "lag", "broker-b", "--level", "3", "--json"))
    assert ("jobs", "workers", 3) in {(row["topic"], row["group"], row["lag"]) for row in behind}
    run("group", "create", "others")
    run("offset", "clone", "workers", "others", "jobs", "--yes")
    typo = run("offset", "clone", "workers", "otters", "jobs", "--yes", code=4)
    assert "did you mean others?" in str(typo.exception)
    (cloned,) = rows(run("offset", "show", "others", "jobs", "--json"))
    assert cloned["committed"] == 0
    run("group", "delete", "others", "--yes")
    run("group", "show", "others", code=4)


def test_lines_are_sent_up_to_one_that_cannot_be(run: Run) -> None:
    run("topic", "create", "lines", "-q", "1", "--broker", "broker-a")

    stopped = run("message", "send", "lines", "-", typed="one\ntwo\n\nfour\n", code=1)

    assert "stopped at line 3; the lines before it were sent" in stopped.stderr
    assert "body" in str(stopped.exception)
    tailed = run("message", "tail", "lines").stdout
    assert [line.split()[-1] for line in tailed.splitlines()] == ["one", "two"]


def test_messages_of_several_queues_are_shown_in_the_order_of_their_storing(run: Run) -> None:
    run("topic", "create", "mixed", "-q", "4")
    bodies = [f"{number}" for number in range(30)]
    run("message", "send", "mixed", "-", typed="\n".join(bodies))

    tailed = run("message", "tail", "mixed").stdout

    times = [line.split()[:2] for line in tailed.splitlines()]
    assert times == sorted(times)
    assert sorted(line.split()[-1] for line in tailed.splitlines()) == sorted(bodies)


def test_the_last_messages_are_shown_however_slowly_they_come(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("topic", "create", "slow", "-q", "2", "--broker", "broker-a")
    bodies = [f"{number}" for number in range(6)]
    run("message", "send", "slow", "-", typed="\n".join(bodies))
    monkeypatch.setattr("orbitmq.cli.message._COLLECT_MS", 0)

    tailed = run("message", "tail", "slow").stdout
    of_no_tag = run("message", "tail", "slow", "--tags", "none").stdout

    assert sorted(line.split()[-1] for line in tailed.splitlines()) == bodies
    assert of_no_tag == ""


def test_a_lag_that_is_watched_comes_as_a_line_of_json_each_time(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    class TwoLooks:
        looks = 0

        async def sleep_ms(self, _: float) -> None:
            self.looks += 1
            if self.looks == 2:
                raise KeyboardInterrupt

    monkeypatch.setattr("orbitmq.cli.group.SystemClock", TwoLooks)
    run("topic", "create", "looked-at", "-q", "1", "--broker", "broker-a")
    run("group", "create", "lookers")
    run("offset", "set", "lookers", "looked-at", "broker-a", "0", "0", "--yes")
    run("message", "send", "looked-at", "one")

    watched = run("group", "lag", "lookers", "--topic", "looked-at", "--watch", "--json",
                  code=130)  # fmt: skip

    first, second = map(json.loads, watched.stdout.splitlines())
    assert first == second
    assert first["lag"] == 1


def test_members_of_a_group_are_watched_and_given_a_message(run: Run, cluster: Cluster) -> None:
    run("topic", "create", "parcels", "-q", "2", "--broker", "broker-a")
    received: Queue[bytes] = Queue()
    consumer = PushConsumer(
        "carriers",
        on_message=lambda message: received.put(message.body),
        namesrv=cluster.namesrv,
        # The message may be sent before the consumer has its queues.
        consume_from="first",
    )
    consumer.subscribe("parcels")
    with consumer, Producer("senders", namesrv=cluster.namesrv) as producer:
        sent = producer.send(Message("parcels", "a parcel", keys=["key"]))
        assert received.get(timeout=60) == b"a parcel"

        (member,) = rows(run("group", "members", "carriers", "--json"))
        client_id = str(member["client_id"])
        one = shown(run("group", "running", "carriers", client_id, "--stacks", "--json"))
        (all_of_them,) = rows(run("consumerStatus", "-g", "carriers", "--json"))
        # A producer tells of itself beside its first message.
        wait_until(
            lambda: bool(rows(run("broker", "producers", "broker-a", "--json"))),
            timeout_s=60,
            what="the broker knows of the producer",
        )
        (sender,) = rows(run("producerConnection", "-g", "senders", "-t", "parcels", "--json"))
        at_broker = rows(run("broker", "producers", "broker-a", "--json"))
        by_place = shown(run("message", "consume", sent.offset_message_id, "carriers", "--json"))
        again = run(
            *("queryMsgByUniqueKey", "-i", sent.message_id, "-t", "parcels"),
            *("-g", "carriers", "-d", client_id),
        )
        run("offset", "set", "carriers", "parcels", "broker-a", "0", "0", "--yes", code=1)

        assert "parcels:*" in str(member["subscriptions"])
        assert isinstance(one, dict)
        assert {queue["queue"] for queue in one["queues"] if queue["topic"] == "parcels"} == {0, 1}
        assert "thread" in one["stacks"]
        assert all_of_them["client_id"] == client_id
        assert ("senders", sender["client_id"], sender["address"]) in {
            (row["group"], row["client_id"], row["address"]) for row in at_broker
        }
        assert isinstance(by_place, dict)
        assert by_place["client_id"] == client_id
        assert by_place["result"] == "CR_SUCCESS"
        assert "CR_SUCCESS" in again.stdout
        assert [received.get(timeout=60) for _ in range(2)] == [b"a parcel"] * 2
    assert "has no members now" in run("group", "running", "carriers").stdout
    run("message", "consume", sent.offset_message_id, "carriers", code=4)
    run("offset", "set", "carriers", "parcels", cluster.broker("broker-a").address, "1", "0",
        "--yes")  # fmt: skip
    run("group", "forbid", "carriers", "parcels", "--yes")
    run("group", "allow", "carriers", "parcels")
    # Our brokers do not pop.
    assert "not supported" in str(
        run("group", "mode", "carriers", "parcels", "pop", code=1).exception
    )


def test_a_topic_is_looked_into(run: Run) -> None:
    run("topic", "create", "logs", "-q", "2", "--broker", "broker-b")
    run("message", "send", "logs", "one", "--broker", "broker-b", "--queue", "1", "--tags", "t")
    run("message", "send", "logs", "two", "--broker", "broker-b", "--queue", "1")

    (traffic,) = rows(run("topic", "traffic", "logs", "--json"))
    assert (traffic["group"], traffic["lag"]) == (None, 0)
    listed = {row["topic"] for row in rows(run("topic", "traffic", "--json"))}
    assert "logs" in listed
    assert not listed & {"TBW102", "broker-a", "DefaultCluster"}
    assert "TBW102" in run("topic", "traffic", "--all").stdout
    entries = rows(run("queryCq", "-t", "logs", "-b", "broker-b", "-q", "1", "-i", "0", "--json"))
    assert [row["offset"] for row in entries] == [0, 1]
    shares = rows(run("allocateMQ", "-t", "logs", "-i", "b,a", "--json"))
    assert [(row["client_id"], row["queue"]) for row in shares] == [("a", 0), ("b", 1)]
    found = run("message", "find", "logs", "--from", "1h", "--queue", "1", "--tags", "t").stdout
    assert "one" in found
    assert "two" not in found
    run("message", "find", "logs", "--from", "1h", "--queue", "0", code=4)
    at_once = run("message", "at", "logs", "broker-b", "1", "0", "--count", "9").stdout
    assert at_once.count("message_id") == 2 * 2  # with that of its place
    probed = shown(run("checkMsgSendRT", "-t", "logs", "-a", "3", "--json"))
    assert isinstance(probed, dict)
    assert [row["result"] for row in probed["sends"]] == ["OK"] * 3
    run("topic", "permit", "logs", "r")
    (row,) = rows(run("topic", "show", "logs", "--json"))
    assert (row["permission"], row["read_queues"]) == ("r", 2)
    run("topic", "permit", "logs", "x", code=2)


def test_name_servers_are_read_and_changed(run: Run) -> None:
    options = shown(run("getNamesrvConfig", "--json"))
    assert isinstance(options, dict)
    assert "listenPort" in options

    run("namesrv", "set", "orderMessageEnable=true", "--yes")

    assert shown(run("namesrv", "config", "orderMessageEnable", "--json")) == {
        "orderMessageEnable": "true"
    }


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
    assert run("cleanExpiredCQ", "-c", "DefaultCluster").stdout.count("has cleaned up") == 2
    both = shown(run("broker", "status", "DefaultCluster", "--json"))
    assert isinstance(both, dict)
    assert list(both) == ["broker-a", "broker-b"]
    assert "broker-b" in run("getBrokerConfig", "-c", "DefaultCluster").stdout
    run("updateBrokerConfig", "-b", address, "-k", "maxMessageSize", "-v", "65537")
    assert "65537" in run("broker", "config", "broker-b", "maxMessageSize").stdout
    forbidden = run("broker", "forbid-writing", "broker-a", "--yes").stdout
    allowed = run("broker", "allow-writing", "broker-a").stdout
    assert re.fullmatch(r"[1-9]\d* topics of broker-a are read-only\n", forbidden)
    assert re.fullmatch(r"\d+ topics of broker-a are writable\n", allowed)
    run("broker", "status", "broker-c", code=4)
    run("broker", "set", "broker-a", "maxMessageLimit=1", "--yes", code=1)


def test_a_topic_shows_that_writing_to_its_broker_is_forbidden(run: Run) -> None:
    run("topic", "create", "closing", "-q", "1")

    def permissions() -> list[object]:
        return [row["permission"] for row in rows(run("topic", "show", "closing", "--json"))]

    before = permissions()
    run("broker", "forbid-writing", "broker-a", "--yes")
    forbidden = permissions()
    run("broker", "allow-writing", "broker-a")

    assert (before, forbidden) == (["rw", "rw"], ["r", "rw"])
    assert permissions() == before


def test_a_search_by_tag_finds_the_newest_oldest_first(run: Run) -> None:
    run("topic", "create", "paints", "-q", "2", "--broker", "broker-a")
    for number in range(5):
        run("message", "send", "paints", f"{number}", "--tags", "red")

    def bodies(*words: str) -> list[object]:
        return [row["body"] for row in rows(run(*words, "--json"))]

    found = bodies("queryMsgByKey", "-t", "paints", "-k", "red", "-p", "T", "-m", "3")

    assert found == ["2", "3", "4"]
    assert bodies("queryMsgByKey", "-t", "paints", "-k", "red", "-p", "T") == list("01234")


def test_key_values(run: Run) -> None:
    run("kv", "put", "colours", "sky", "blue")

    assert run("kv", "get", "colours", "sky").stdout == "blue\n"
    assert shown(run("kv", "list", "colours", "--json")) == [{"key": "sky", "value": "blue"}]
    run("kv", "delete", "colours", "sky", "--yes")
    run("kv", "get", "colours", "sky", code=1)


def test_the_config_file_of_the_user_is_read(
    run: Run, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("NAMESRV_ADDR")
    (tmp_path / "orbitmq.toml").write_text(f'namesrv = "{cluster.namesrv}"\n')
    assert "broker-a" in run("cluster", "list").stdout

    (tmp_path / "orbitmq.toml").write_text('namsrv = "x"\n')
    assert "did you mean namesrv?" in str(run("cluster", "list", code=1).exception)
    (tmp_path / "orbitmq.toml").write_text("namesrv\n")
    assert "cannot read" in str(run("cluster", "list", code=1).exception)


def test_names_of_mqadmin_do_what_ours_do(run: Run) -> None:
    run("updateTopic", "-t", "from-mqadmin", "-c", "DefaultCluster", "-r", "2", "-w", "2")

    assert (
        run("topicRoute", "-t", "from-mqadmin").stdout
        == run("topic", "show", "from-mqadmin").stdout
    )
    run("updateKvConfig", "-s", "ns", "-k", "key", "-v", "value")
    assert run("kv", "get", "ns", "key").stdout == "value\n"
    run("sendMessage", "-t", "from-mqadmin", "-p", "a parcel", "-k", "key")
    assert "a parcel" in run("queryMsgByKey", "-t", "from-mqadmin", "-k", "key").stdout
    run("deleteTopic", "-t", "from-mqadmin", "-c", "DefaultCluster")
    run("topic", "show", "from-mqadmin", code=4)
