"""The topics of a broker: kept in a file, created on demand."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from orbitmq import java_json
from orbitmq.broker.topics.system_topics import system_topics
from orbitmq.broker.topics.topic_table import TopicTable
from orbitmq.clock import ManualClock
from orbitmq.errors import NameRuleError, TopicMissingError, TopicRefusedError
from orbitmq.model.topics import TopicConfig
from orbitmq.model.versions import DataVersion

# As RocketMQ 5.5.0 writes it, cut down to three topics; the last as 4.9.7 does.
JAVA_FILE = b"""{
\t"dataVersion":{
\t\t"counter":7,
\t\t"stateVersion":0,
\t\t"timestamp":1700000000123
\t},
\t"topicConfigTable":{
\t\t"orders":{
\t\t\t"attributes":{
\t\t\t\t"message.type":"FIFO"
\t\t\t},
\t\t\t"order":true,
\t\t\t"perm":6,
\t\t\t"readQueueNums":4,
\t\t\t"topicFilterType":"SINGLE_TAG",
\t\t\t"topicName":"orders",
\t\t\t"topicSysFlag":0,
\t\t\t"writeQueueNums":4
\t\t},
\t\t"TBW102":{
\t\t\t"attributes":{},
\t\t\t"order":false,
\t\t\t"perm":7,
\t\t\t"readQueueNums":3,
\t\t\t"topicFilterType":"MULTI_TAG",
\t\t\t"topicName":"TBW102",
\t\t\t"topicSysFlag":0,
\t\t\t"writeQueueNums":3
\t\t},
\t\t"%RETRY%g":{
\t\t\t"order":false,
\t\t\t"perm":6,
\t\t\t"readQueueNums":1,
\t\t\t"topicFilterType":"SINGLE_TAG",
\t\t\t"topicName":"%RETRY%g",
\t\t\t"topicSysFlag":0,
\t\t\t"writeQueueNums":1
\t\t}
\t}
}"""


async def loaded(
    folder: Path,
    clock: ManualClock | None = None,
    *,
    auto_create: bool = True,
    topics_max: int = 1000,
    queues_max: int = 100_000,
) -> TopicTable:
    table = TopicTable(
        folder,
        clock=clock or ManualClock(),
        system_topics=system_topics("C", "b"),
        auto_create=auto_create,
        topics_max=topics_max,
        queues_max=queues_max,
    )
    await table.load()
    return table


async def test_a_topic_survives_a_restart(tmp_path: Path) -> None:
    before = await loaded(tmp_path)
    topic = await before.put(
        TopicConfig(name="T", read_queues=4, write_queues=2), "+message.type=FIFO"
    )
    await before.put(TopicConfig(name="gone"))
    assert await before.delete("gone")

    after = await loaded(tmp_path)

    assert after.get("T") == topic
    assert topic.attributes == {"message.type": "FIFO"}
    assert after.get("gone") is None
    assert after.data_version == before.data_version


async def test_a_new_broker_has_the_system_topics(tmp_path: Path) -> None:
    table = await loaded(tmp_path)

    assert table.require("TBW102").is_template
    assert table.is_system("C_REPLY_TOPIC")
    assert table.is_system("b")
    assert not table.is_system("orders")


async def test_a_file_of_rocketmq_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "topics.json").write_bytes(JAVA_FILE)

    table = await loaded(tmp_path)

    assert table.require("orders") == TopicConfig(
        name="orders",
        attributes={"message.type": "FIFO"},
        order=True,
        read_queues=4,
        write_queues=4,
    )
    # A system topic in the file is kept; missing ones are added.
    assert table.require("TBW102").write_queues == 3
    assert table.require("SCHEDULE_TOPIC_XXXX").write_queues == 18
    assert table.data_version.counter == 8


async def test_every_change_makes_a_newer_version(tmp_path: Path) -> None:
    clock = ManualClock()
    table = await loaded(tmp_path, clock)
    start = table.data_version.counter
    await clock.advance(5)

    await table.put(TopicConfig(name="T"))
    await table.put(TopicConfig(name="T"))  # changes nothing
    await table.put(TopicConfig(name="T", permission=4))
    await table.delete("T")
    assert not await table.delete("T")  # neither

    assert table.data_version.counter == start + 3
    assert table.data_version.timestamp == clock.now_ms()


async def test_attributes_stay_when_a_topic_changes(tmp_path: Path) -> None:
    table = await loaded(tmp_path)
    await table.put(TopicConfig(name="T"), "+message.type=FIFO,+orbitmq.storage=memory")

    await table.put(TopicConfig(name="T", read_queues=9), "-message.type")

    assert table.require("T").attributes == {"orbitmq.storage": "memory"}
    with pytest.raises(TopicRefusedError, match="fixed"):
        await table.put(TopicConfig(name="T"), "+orbitmq.storage=disk")


@pytest.mark.parametrize(
    ("topic", "told"),
    [
        (TopicConfig(name="TBW102"), "a system topic"),
        (TopicConfig(name="C"), "a system topic"),
        (TopicConfig(name="rmq_sys_x"), "a system topic"),
        (TopicConfig(name="T", read_queues=-1), "cannot have -1 read queues"),
        (TopicConfig(name="T", write_queues=65_537), r"65537 write queues \(use 0 to 65536"),
        (TopicConfig(name="T", permission=16), "cannot have permission 16"),
    ],
)
async def test_invalid_topics_are_refused(tmp_path: Path, topic: TopicConfig, told: str) -> None:
    table = await loaded(tmp_path)

    with pytest.raises(TopicRefusedError, match=told):
        await table.put(topic)


async def test_an_invalid_name_is_refused(tmp_path: Path) -> None:
    table = await loaded(tmp_path)

    with pytest.raises(NameRuleError):
        await table.put(TopicConfig(name="a b"))
    with pytest.raises(NameRuleError):
        await table.ensure_for_send("a b", template="TBW102", queues=4)


async def test_system_topics_cannot_be_deleted(tmp_path: Path) -> None:
    table = await loaded(tmp_path)

    with pytest.raises(TopicRefusedError, match="a system topic"):
        await table.delete("SCHEDULE_TOPIC_XXXX")


async def test_topics_are_bounded(tmp_path: Path) -> None:
    table = await loaded(tmp_path, topics_max=14)
    await table.put(TopicConfig(name="T"))

    with pytest.raises(
        TopicRefusedError, match="14 topics, of at most 14; cannot add 1, such as 'U'"
    ):
        await table.put(TopicConfig(name="U"))
    await table.put(TopicConfig(name="T", read_queues=3))


async def test_queues_of_all_topics_are_bounded(tmp_path: Path) -> None:
    table = await loaded(tmp_path)
    system = sum(max(one.read_queues, one.write_queues) for one in table.topics.values())
    table = await loaded(tmp_path, queues_max=system + 100)
    await table.put(TopicConfig(name="T", read_queues=60, write_queues=60))

    with pytest.raises(TopicRefusedError, match=f"would have {system + 110} queues, of at most"):
        await table.put(TopicConfig(name="U", read_queues=50, write_queues=9))
    await table.put(TopicConfig(name="U", read_queues=40, write_queues=40))
    with pytest.raises(TopicRefusedError, match="cannot add those of 'U'"):
        await table.put(TopicConfig(name="U", read_queues=41, write_queues=40))
    await table.put(TopicConfig(name="T", read_queues=10, write_queues=10))
    await table.put(TopicConfig(name="U", read_queues=90, write_queues=90))


async def test_a_send_creates_its_topic_from_the_template(tmp_path: Path) -> None:
    (tmp_path / "topics.json").write_bytes(JAVA_FILE)
    table = await loaded(tmp_path)

    few = await table.ensure_for_send("few", template="TBW102", queues=2, unit_flag=1)
    many = await table.ensure_for_send("many", template="TBW102", queues=100)

    assert few == TopicConfig(
        name="few", read_queues=2, write_queues=2, filter_type="MULTI_TAG", unit_flag=1
    )
    assert (many.read_queues, many.write_queues, many.permission) == (3, 3, 6)
    assert await table.ensure_for_send("few", template="nonsense", queues=9) is few


@pytest.mark.parametrize(
    ("template", "auto_create", "told"),
    [
        ("nonsense", True, "its template 'nonsense' does not exist"),
        ("TBW102", False, r"'T' does not exist.*autoCreateTopicEnable is off \(create it with"),
        ("BenchmarkTest", True, r"'BenchmarkTest' is not a template \(permission 6\)"),
    ],
)
async def test_a_send_without_a_template_is_refused_with_the_reason(
    tmp_path: Path, template: str, *, auto_create: bool, told: str
) -> None:
    table = await loaded(tmp_path, auto_create=auto_create)

    with pytest.raises(TopicMissingError, match=told):
        await table.ensure_for_send("T", template=template, queues=4)


async def test_another_template_is_used_though_auto_create_is_off(tmp_path: Path) -> None:
    table = await loaded(tmp_path, auto_create=False)

    assert (await table.ensure_for_send("T", template="C", queues=4)).write_queues == 4


async def test_a_send_to_a_retry_topic_creates_it_without_a_template(tmp_path: Path) -> None:
    table = await loaded(tmp_path, auto_create=False)

    topic = await table.ensure_for_send("%RETRY%g", template="nonsense", queues=8)

    assert (topic.read_queues, topic.permission) == (1, 6)


async def test_topics_of_groups_are_created_on_demand(tmp_path: Path) -> None:
    table = await loaded(tmp_path)

    retry = await table.ensure_retry("g", queues=3, unit_flag=2)
    dead = await table.ensure_dead_letter("g")

    assert retry == TopicConfig(name="%RETRY%g", read_queues=3, write_queues=3, unit_flag=2)
    assert dead == TopicConfig(name="%DLQ%g", read_queues=1, write_queues=1)
    assert await table.ensure_retry("g") is retry


async def test_a_retry_topic_follows_the_order_of_its_group(tmp_path: Path) -> None:
    table = await loaded(tmp_path)
    await table.ensure_retry("g", queues=3)

    topic = await table.ensure_retry("g", order=True)

    assert topic.order
    assert topic.read_queues == 3


async def test_many_senders_create_a_topic_once(tmp_path: Path) -> None:
    table = await loaded(tmp_path)
    start = table.data_version.counter

    await asyncio.gather(
        *(table.ensure_for_send("T", template="TBW102", queues=4) for _ in range(20))
    )

    assert table.data_version.counter == start + 1


async def test_a_missing_topic_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TopicMissingError, match="'T' does not exist"):
        (await loaded(tmp_path)).require("T")


async def test_listeners_are_called_for_changes_that_are_on_disk(tmp_path: Path) -> None:
    table = await loaded(tmp_path)
    told: list[frozenset[str]] = []

    def listener(changed: frozenset[str]) -> None:
        document = java_json.decode((tmp_path / "topics.json").read_bytes(), dict)
        assert all((name in document["topicConfigTable"]) == (name != "gone") for name in changed)
        told.append(changed)

    await table.put(TopicConfig(name="gone"))
    table.listen(listener)
    await table.put(TopicConfig(name="T"))
    await table.put(TopicConfig(name="T"))
    await table.put(TopicConfig(name="T", permission=4))
    await table.delete("gone")

    assert told == [frozenset({"T"}), frozenset({"T"}), frozenset({"gone"})]


async def test_a_listener_that_fails_does_not_fail_the_change(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = await loaded(tmp_path)
    told: list[frozenset[str]] = []

    def failing(_: frozenset[str]) -> None:
        raise ValueError("no")

    table.listen(failing)
    table.listen(told.append)
    with caplog.at_level(logging.ERROR):
        await table.put(TopicConfig(name="T"))

    assert told == [frozenset({"T"})]
    assert "topic listener failed" in caplog.text


# --- a slave ----------------------------------------------------------------------------------

VERSION = DataVersion(counter=7, state_version=2, timestamp=9)


async def test_a_slave_has_the_topics_and_the_version_of_its_master(tmp_path: Path) -> None:
    table = await loaded(tmp_path)
    system = set(table.topics)
    await table.put(TopicConfig(name="gone"))
    kept = await table.put(TopicConfig(name="kept"))
    changes: list[frozenset[str]] = []
    table.listen(changes.append)
    template = TopicConfig(name="TBW102", read_queues=2, write_queues=2)

    await table.follow(
        {
            "kept": TopicConfig(name="kept"),
            "new": TopicConfig(name="new"),
            "TBW102": template,
            "a.broker": TopicConfig(name="a.broker"),
        },
        VERSION,
    )

    for copy in (table, await loaded(tmp_path)):
        assert set(copy.topics) == {"kept", "new", "a.broker", *system}
        assert copy.get("TBW102") == template
        assert copy.data_version == VERSION
    assert table.get("kept") is kept
    assert changes == [frozenset({"gone", "new", "TBW102", "a.broker"})]


async def test_a_slave_that_lacks_a_change_keeps_its_version(tmp_path: Path) -> None:
    table = await loaded(tmp_path)
    before = table.data_version

    await table.follow({"new": TopicConfig(name="new")}, None)

    assert table.get("new") is not None
    assert table.data_version == before


@pytest.mark.parametrize(
    ("topics", "reason"),
    [
        ([TopicConfig(name="../T")], "'../T', listed as '../T', cannot have this name"),
        ([TopicConfig(name="..")], "cannot have this name"),
        ([TopicConfig(name="")], "cannot have this name"),
        ([TopicConfig(name="x" * 256)], "cannot have this name"),
        ([TopicConfig(name="T", read_queues=-1)], "cannot have -1 read queues"),
        ([TopicConfig(name="T", permission=-1)], "cannot have permission -1"),
        ([TopicConfig(name=str(number)) for number in range(31)], "of at most 30; cannot add 31"),
        ([TopicConfig(name=name, read_queues=3000) for name in "ab"], "6000 queues, of at most 5"),
    ],
)
async def test_an_unusable_table_of_a_master_changes_nothing(
    tmp_path: Path, topics: list[TopicConfig], reason: str
) -> None:
    table = await loaded(tmp_path, topics_max=30, queues_max=5000)
    before = dict(table.topics), table.data_version

    with pytest.raises(TopicRefusedError, match=reason):
        await table.follow({topic.name: topic for topic in topics}, VERSION)

    assert (table.topics, table.data_version) == before


async def test_a_topic_listed_under_another_name_is_refused(tmp_path: Path) -> None:
    table = await loaded(tmp_path)

    with pytest.raises(TopicRefusedError, match="topic 'b', listed as 'a', cannot"):
        await table.follow({"a": TopicConfig(name="b")}, VERSION)
