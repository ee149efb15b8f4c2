"""Our command line and mqadmin say and do the same, at our cluster and at official ones.

Both are given the same command lines. What is compared is values, not their layout.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orbitmq import java_json
from orbitmq.client import Message, SendResult
from orbitmq.model.routes import TopicRoute
from tests.interop import wire
from tests.interop.command_lines import (
    CommandLines,
    agree,
    columns,
    named,
    printed_messages,
    reaches,
    shown_messages,
)
from tests.interop.conftest import both_name_servers, official_brokers
from tests.interop.drivers import NOTHING_CONSUMED, JavaDriver
from tests.interop.official import CLUSTER, OfficialBroker
from tests.interop.peers import SITES, NameServer
from tests.interop.python_trials import Trial, numbered
from tests.interop.timeouts import CLIENT_TIMEOUT_S
from tests.waiting import beside

pytestmark = pytest.mark.interop

MESSAGES = 8


@pytest.fixture(scope="module")
def name_servers(new_folder: Callable[[str], Path]) -> Iterator[dict[str, NameServer]]:
    """Two of its own: topics are deleted and permissions changed at one of them."""
    with both_name_servers(new_folder) as servers:
        yield servers


@pytest.fixture(scope="module")
def brokers(
    name_servers: dict[str, NameServer], new_folder: Callable[[str], Path]
) -> Iterator[dict[str, OfficialBroker]]:
    with official_brokers(name_servers, new_folder, deletes_topics=True) as own:
        yield own


@pytest.fixture
async def both(trial: Trial, drivers: Callable[[str], JavaDriver]) -> CommandLines:
    """The two command lines; the JVM of the one is started outside the loop."""
    return await beside(CommandLines, trial, drivers)


async def send_some(trial: Trial) -> list[SendResult]:
    """Send messages that can be told apart, with keys and tags."""
    producer = await trial.producer()
    return [
        await producer.send(
            Message(trial.topic, body, keys=[f"key-{number}"], tags=["even", "odd"][number % 2])
        )
        for number, body in enumerate(numbered(MESSAGES))
    ]


async def route_of(both: CommandLines, topic: str) -> TopicRoute:
    """What mqadmin says of a topic's route."""
    return java_json.decode((await both.theirs("topicRoute", "-t", topic)).encode(), TopicRoute)


@pytest.mark.scenario("site", "commands: updateTopic, topicRoute, topicList, topicStatus, perm")
async def test_topics_are_the_same(trial: Trial, both: CommandLines, new_topic: str) -> None:
    address, topic = trial.site.broker.address, f"{new_topic}-made"
    await both.ours("updateTopic", "-t", topic, "-b", address, "-r", "3", "-w", "2")
    await send_some(trial)

    async def theirs() -> object:
        route = await route_of(both, topic)
        status = await both.theirs("topicStatus", "-t", trial.topic)
        return (
            [(one.broker_name, one.read_queues, one.write_queues) for one in route.queues],
            [one.addresses[0] for one in route.brokers],
            {
                (int(row[1]), int(row[2]), int(row[3]))
                for row in columns(status, of=trial.site.broker.name)
            },
            set((await both.theirs("topicList")).split()),
            (await both.theirs("topicClusterList", "-t", topic)).split(),
        )

    async def ours() -> object:
        shown = await both.rows("topicRoute", "-t", topic)
        status = await both.rows("topicStatus", "-t", trial.topic)
        clusters = await both.rows("clusterList")
        return (
            [(row["broker"], row["read_queues"], row["write_queues"]) for row in shown],
            [row["address"] for row in shown],
            {(row["queue"], row["min_offset"], row["max_offset"]) for row in status},
            {row["topic"] for row in await both.rows("topicList")},
            [row["cluster"] for row in clusters if row["broker"] == trial.site.broker.name],
        )

    await agree(theirs, ours)

    async def permissions() -> list[int]:
        return [one.permission for one in (await route_of(both, topic)).queues]

    async def changed() -> list[tuple[int, str]]:
        shown = await both.rows("topicRoute", "-t", topic)
        return [(row["read_queues"], row["permission"]) for row in shown]

    await both.ours("updateTopicPerm", "-t", topic, "-b", address, "-p", "4")
    await reaches([4], permissions)
    await both.theirs("updateTopic", "-t", topic, "-b", address, "-r", "5", "-w", "5", "-p", "6")
    await reaches([(5, "rw")], changed)
    members = "10.0.0.1,10.0.0.2"
    allocated = await both.theirs("allocateMQ", "-t", topic, "-i", members)
    shares = await both.rows("allocateMQ", "-t", topic, "-i", members)
    # mqadmin does not sort the queues before it shares them out, as consumers do.
    assert Counter(row["client_id"] for row in shares) == {
        member: len(queues) for member, queues in json.loads(allocated)["result"].items()
    }


@pytest.mark.scenario("site", "commands: deleteTopic, deleteSubGroup")
async def test_deletions_are_seen_by_the_other(trial: Trial, both: CommandLines) -> None:
    address, name_server = trial.site.broker.address, trial.site.name_server
    await both.theirs("updateSubGroup", "-b", address, "-g", trial.group)
    await both.ours("deleteSubGroup", "-b", address, "-g", trial.group, "-r", "true")
    assert await both.theirs("getConsumerConfig", "-g", trial.group) == ""

    await both.ours("deleteTopic", "-t", trial.topic, "-c", CLUSTER)

    async def is_listed() -> bool:
        return trial.topic in (await both.theirs("topicList")).split()

    await beside(
        wire.wait_route_code,
        name_server,
        trial.topic,
        wire.TOPIC_NOT_EXIST,
        timeout_s=CLIENT_TIMEOUT_S,
    )
    await reaches(False, is_listed)


@pytest.mark.scenario("site", "commands: clusterList, brokerStatus, get and updateBrokerConfig")
async def test_brokers_are_the_same(trial: Trial, both: CommandLines) -> None:
    broker = trial.site.broker

    async def theirs() -> object:
        # Compat: the tool of the 4.9 line misses a figure that 5.x brokers name differently.
        listed = await both.theirs("clusterList", complaint="NullPointer")
        status = named(await both.theirs("brokerStatus", "-b", broker.address), ":")
        config = named(await both.theirs("getBrokerConfig", "-b", broker.address), "=  ")
        rows = [row for row in columns(listed, of=CLUSTER) if row[1] == broker.name]
        return (
            [row[:5] for row in rows],
            {name for name in status if not name.startswith("commitLogDiskRatio_")},
            status["brokerVersionDesc"],
            status["bootTimestamp"],
            status["msgPutTotalTodayNow"],
            status["commitLogMaxOffset"],
            config,
        )

    async def ours() -> object:
        status = await both.one("brokerStatus", "-b", broker.address)
        rows = [row for row in await both.rows("clusterList") if row["broker"] == broker.name]
        return (
            [
                [row["cluster"], row["broker"], str(row["id"]), row["address"], row["version"]]
                for row in rows
            ],
            {name for name in status if not name.startswith("commitLogDiskRatio_")},
            status["brokerVersionDesc"],
            status["bootTimestamp"],
            status["msgPutTotalTodayNow"],
            status["commitLogMaxOffset"],
            await both.one("getBrokerConfig", "-b", broker.address),
        )

    await agree(theirs, ours)
    for run, value in ((both.ours, "4194303"), (both.theirs, "4194304")):
        setting = ("-k", "maxMessageSize", "-v", value)
        await run("updateBrokerConfig", "-b", broker.address, *setting)
        config = named(await both.theirs("getBrokerConfig", "-b", broker.address), "=  ")
        shown = await both.one("broker", "config", broker.name, "maxMessageSize")
        assert config["maxMessageSize"] == shown["maxMessageSize"] == value


@pytest.mark.scenario("site", "commands: cleanExpiredCQ, cleanUnusedTopic, wipe and addWritePerm")
async def test_brokers_are_looked_after(trial: Trial, both: CommandLines) -> None:
    broker = trial.site.broker
    for command in ("cleanExpiredCQ", "cleanUnusedTopic", "deleteExpiredCommitLog"):
        assert "success" in await both.theirs(command, "-b", broker.address)
        assert "has cleaned up" in await both.ours(command, "-b", broker.address)

    async def without() -> tuple[dict[str, int], list[int]]:
        # A broker that reports its topics at this moment has its permission back: then once more.
        await both.ours("wipeWritePerm", "-b", broker.name)
        try:
            seen = wire.route_permissions(trial.site.name_server, trial.topic)
            return seen, [one.permission for one in (await route_of(both, trial.topic)).queues]
        finally:
            await both.ours("addWritePerm", "-b", broker.name)

    await reaches(({broker.name: wire.READ_ONLY}, [4]), without)
    assert wire.route_permissions(trial.site.name_server, trial.topic) == {
        broker.name: wire.READ_WRITE
    }


@pytest.mark.scenario(
    "site", "commands: consumerProgress, -Connection, -Status, producerConnection"
)
async def test_groups_and_their_clients_are_the_same(trial: Trial, both: CommandLines) -> None:
    broker, group, topic = trial.site.broker, trial.group, trial.topic
    _, inbox = await trial.push(persist_interval_ms=500)
    (client_id,) = await trial.members(1)
    await send_some(trial)
    await inbox.wait(MESSAGES)
    producers = f"producers-{topic}"

    async def theirs() -> object:
        progress = await both.theirs("consumerProgress", "-g", group, complaint=NOTHING_CONSUMED)
        stats = await both.theirs("brokerConsumeStats", "-b", broker.address)
        traffic = columns(await both.theirs("statsAll", "-t", topic), of=topic)
        members = await both.theirs("consumerConnection", "-g", group)
        senders = await both.theirs("producerConnection", "-g", producers, "-t", topic)
        return (
            [tuple(map(int, row[2:6])) for row in columns(progress, of=topic)],
            [tuple(map(int, row[3:7])) for row in columns(stats, of=topic) if row[1] == group],
            [(row[1], int(row[2]), int(row[5]), int(row[6])) for row in traffic],
            columns(members, of=client_id),
            # The number of the line stands first.
            [line.split()[1:] for line in senders.splitlines() if "PYTHON" in line],
        )

    async def ours() -> object:
        progress = await both.one("consumerProgress", "-g", group)
        stats = await both.rows("brokerConsumeStats", "-b", broker.name)
        traffic = await both.rows("statsAll", "-t", topic)
        members = await both.rows("consumerConnection", "-g", group)
        senders = await both.rows("producerConnection", "-g", producers, "-t", topic)
        place = ("queue", "end", "consumed", "lag")
        client = ("client_id", "address", "language", "version")
        return (
            [tuple(row[name] for name in place) for row in progress["queues"]
             if row["topic"] == topic],
            [tuple(row[name] for name in place) for row in stats
             if (row["topic"], row["group"]) == (topic, group)],
            [(row["group"], row["lag"], row["messages_in"], row["messages_out"])
             for row in traffic],
            [[row[name] for name in client] for row in members],
            [[row[name] for name in client] for row in senders],
        )  # fmt: skip

    await agree(theirs, ours)
    config = named(await both.theirs("getConsumerConfig", "-g", group), "=  ")
    shown = await both.one("getConsumerConfig", "-g", group)
    assert (config["retryMaxTimes"], config["retryQueueNums"]) == (
        str(shown["retries_max"]),
        str(shown["retry_queues"]),
    )
    status = await both.theirs("consumerStatus", "-g", group, "-i", client_id, "-s")
    running = await both.one("consumerStatus", "-g", group, "-i", client_id, "-s")
    offsets = status.partition("#Consumer Offset#")[2].partition("#Consumer MQ Detail#")[0]
    assert {(int(row[2]), int(row[3])) for row in columns(offsets, of=topic)} == {
        (row["queue"], row["committed"]) for row in running["queues"] if row["topic"] == topic
    }
    assert "thread" in running["stacks"].lower()
    assert running["properties"]["PROP_CONSUMER_START_TIMESTAMP"] in status
    listed = await both.theirs("producer", "-b", broker.address)
    found = await both.rows("producer", "-b", broker.address)
    assert {row["client_id"] for row in found if row["group"] == producers} == {
        line.partition("clientId=")[2].partition(",")[0]
        for line in listed.splitlines()
        if f"({producers})" in line
    }


@pytest.mark.scenario("site", "commands: updateSubGroup, getConsumerConfig")
async def test_groups_are_changed(trial: Trial, both: CommandLines) -> None:
    broker, group = trial.site.broker, trial.group
    await both.ours("updateSubGroup", "-b", broker.address, "-g", group, "-r", "5", "-s", "false")
    config = named(await both.theirs("getConsumerConfig", "-g", group), "=  ")
    assert (config["retryMaxTimes"], config["consumeEnable"]) == ("5", "false")

    await both.theirs("updateSubGroup", "-b", broker.address, "-g", group, "-r", "7")
    shown = await both.one("getConsumerConfig", "-g", group)
    assert (shown["retries_max"], shown["may_consume"]) == (7, True)


@pytest.mark.scenario("site", "commands: group forbid and allow")
@pytest.mark.parametrize("site", [one for one in SITES if one.line != "v4"], ids=str, indirect=True)
async def test_a_topic_is_refused_to_a_group_and_given_again(
    trial: Trial, both: CommandLines
) -> None:
    broker, group = trial.site.broker, trial.group
    await both.theirs("updateSubGroup", "-b", broker.address, "-g", group)

    forbidden = await both.ours("group", "forbid", group, trial.topic, "--yes")
    allowed = await both.ours("group", "allow", group, trial.topic)

    assert forbidden == f"{group} may not read {trial.topic} on {broker.name}\n"
    assert allowed == f"{group} may read {trial.topic} on {broker.name}\n"


@pytest.mark.scenario("site", "commands: setConsumeMode")
@pytest.mark.parametrize("site", [one for one in SITES if one.line == "v5"], ids=str, indirect=True)
async def test_a_group_is_told_to_pop(trial: Trial, both: CommandLines) -> None:
    await both.theirs("updateSubGroup", "-b", trial.site.broker.address, "-g", trial.group)
    mode = ("-t", trial.topic, "-g", trial.group, "-m", "POP", "-q", "2")

    told = await both.ours("setConsumeMode", "-c", CLUSTER, *mode)
    by_mqadmin = await both.theirs("setConsumeMode", "-b", trial.site.broker.address, *mode)

    assert told == f"{trial.group} will pop {trial.topic} from {trial.site.broker.name}\n"
    assert "consume mode[POP]" in by_mqadmin


@pytest.mark.scenario("site", "commands: queryMsgById, ByKey, ByUniqueKey, ByOffset, printMsg, Cq")
async def test_messages_are_found_alike(trial: Trial, both: CommandLines) -> None:
    broker, topic = trial.site.broker, trial.topic
    (first, second, *_) = await send_some(trial)
    await trial.shown(MESSAGES)
    await trial.found(f"key-{MESSAGES - 1}")
    # The tool of the 4.9 line asks for no topic here.
    of_topic = ("-t", topic) if both.tool_line == "v5" else ()
    at = ("-i", str(first.queue.queue_id), "-o", str(first.queue_offset))
    lookups = (
        ("queryMsgById", *of_topic, "-i", first.offset_message_id),
        ("queryMsgByUniqueKey", "-t", topic, "-i", first.message_id),
        ("queryMsgByOffset", "-t", topic, "-b", broker.name, *at),
    )
    for lookup in lookups:
        printed = named(await both.theirs(*lookup), ":")
        (message,) = await both.rows(*lookup)
        assert message["message_id"] == first.message_id
        assert message["offset_message_id"] == first.offset_message_id
        assert (printed["Topic"], printed["Tags"], printed["Keys"]) == (
            message["topic"],
            f"[{message['tags']}]",
            f"[{message['keys'][0]}]",
        )
        assert [
            int(printed[name]) for name in ("Queue ID", "Queue Offset", "CommitLog Offset")
        ] == [message["queue"], message["offset"], message["physical_offset"]]
        assert printed["Born Host"] == message["born_host"]

    async def theirs_by_key() -> object:
        found = await both.theirs("queryMsgByKey", "-t", topic, "-k", "key-1")
        return [(row[0], int(row[1]), int(row[2])) for row in columns(found, of=second.message_id)]

    async def ours_by_key() -> object:
        found = await both.rows("queryMsgByKey", "-t", topic, "-k", "key-1")
        return [(one["message_id"], one["queue"], one["offset"]) for one in found]

    assert await agree(theirs_by_key, ours_by_key)
    for line in (
        ("printMsg", "-t", topic, "-d", "true"),
        ("printMsg", "-t", topic, "-d", "true", "-s", "odd"),
        ("printMsgByQueue", "-t", topic, "-a", broker.name, "-i", "1", "-p", "true", "-d", "true"),
        ("consumeMessage", "-t", topic, "-b", broker.name, "-i", "0", "-o", "0", "-c", "1"),
    ):
        printed_ones = printed_messages(await both.theirs(*line))
        assert printed_ones
        assert shown_messages(await both.rows(*line)) == printed_ones, line
    entries = ("queryCq", "-t", topic, "-q", "0", "-i", "0", "-b", broker.address, "-c", "5")
    printed_entries = await both.theirs(*entries)
    shown_entries = await both.rows(*entries)
    assert shown_entries
    for row in shown_entries:
        assert f"physicOffset={row['physical_offset']}," in printed_entries
        assert f"physicSize={row['record_bytes']}," in printed_entries
        assert f"tagsCode={row['tag_hash']}," in printed_entries


@pytest.mark.scenario("site", "commands: sendMessage, checkMsgSendRT, queryMsgById to a consumer")
async def test_messages_are_sent_and_handed_out_alike(trial: Trial, both: CommandLines) -> None:
    topic, group = trial.topic, trial.group
    await both.ours("sendMessage", "-t", topic, "-p", "of ours", "-k", "our-key", "-c", "tag")
    await both.theirs("sendMessage", "-t", topic, "-p", "of theirs", "-k", "their-key")
    _, inbox = await trial.push()
    (client_id,) = await trial.members(1)
    received = await inbox.wait(2)
    (mine,) = (message for message in received if message.keys == ("our-key",))
    await trial.found("our-key")

    assert {message.body for message in received} == {b"of ours", b"of theirs"}
    handed = ("-g", group, "-d", client_id)
    for run in (both.theirs, both.ours):
        printed = await run("queryMsgByUniqueKey", "-t", topic, "-i", mine.message_id, *handed)
        assert "CR_SUCCESS" in printed
    await inbox.wait_exactly(4)
    timed = await both.theirs("checkMsgSendRT", "-t", topic, "-a", "3", "-s", "16")
    probed = await both.one("checkMsgSendRT", "-t", topic, "-a", "3", "-s", "16")
    assert len(columns(timed, of=trial.site.broker.name)) == len(probed["sends"]) == 3
    assert {row["result"] for row in probed["sends"]} == {"OK"}


@pytest.mark.scenario(
    "site", "commands: resetOffsetByTime, skipAccumulatedMessage, cloneGroupOffset"
)
async def test_offsets_are_moved_alike(trial: Trial, both: CommandLines) -> None:
    broker, group, topic = trial.site.broker, trial.group, trial.topic
    await send_some(trial)
    consumer, inbox = await trial.push(persist_interval_ms=500)
    await inbox.wait(MESSAGES)
    await trial.committed(MESSAGES)
    await consumer.stop()

    async def lag() -> int:
        """What is left to consume, as both say."""

        async def theirs() -> int:
            printed = await both.theirs("consumerProgress", "-g", group, complaint=NOTHING_CONSUMED)
            return sum(int(row[5]) for row in columns(printed, of=topic))

        async def ours() -> int:
            return int((await both.one("consumerProgress", "-g", group, "-t", topic))["lag"])

        return await agree(theirs, ours)

    await reaches(0, lag)
    for run in (both.ours, both.theirs):
        await run("resetOffsetByTime", "-g", group, "-t", topic, "-s", "0")
        await reaches(MESSAGES, lag)
        await both.ours("skipAccumulatedMessage", "-g", group, "-t", topic)
        await reaches(0, lag)
    for run, copy in ((both.ours, f"{group}-2"), (both.theirs, f"{group}-3")):
        await both.ours("updateSubGroup", "-b", broker.address, "-g", copy)
        await run("cloneGroupOffset", "-s", group, "-d", copy, "-t", topic, "-o", "true")
        shown = await both.rows("offset", "show", copy, topic)
        assert [row["committed"] for row in shown] == [row["max_offset"] for row in shown]


@pytest.mark.scenario(
    "site", "commands: getNamesrvConfig, updateNamesrvConfig, KV and order config"
)
async def test_name_servers_are_the_same(trial: Trial, both: CommandLines) -> None:
    config = named(await both.theirs("getNamesrvConfig"), "=  ")
    assert await both.one("getNamesrvConfig") == config

    for run, value in ((both.ours, "true"), (both.theirs, "false")):
        await run("updateNamesrvConfig", "-k", "orderMessageEnable", "-v", value)
        changed = named(await both.theirs("getNamesrvConfig"), "=  ")["orderMessageEnable"]
        shown = await both.one("namesrv", "config", "orderMessageEnable")
        assert changed == shown["orderMessageEnable"] == value

    order = f"{trial.site.broker.name}:4"
    await both.ours("updateOrderConf", "-t", trial.topic, "-m", "put", "-v", order)
    assert f"orderConf=[{order}]" in await both.theirs(
        "updateOrderConf", "-t", trial.topic, "-m", "get"
    )
    await both.ours("updateOrderConf", "-t", trial.topic, "-m", "delete")
    await both.theirs("updateKvConfig", "-s", "ORBIT", "-k", trial.topic, "-v", "a value")
    assert await both.ours("kv", "get", "ORBIT", trial.topic) == "a value\n"
    await both.ours("deleteKvConfig", "-s", "ORBIT", "-k", trial.topic)
    entry = {"namespace": "ORBIT", "key": trial.topic}
    gone = await beside(wire.ask, trial.site.name_server, wire.GET_KV_CONFIG, entry)
    assert gone.code == wire.QUERY_NOT_FOUND
