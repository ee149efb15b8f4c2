"""The consumer groups of a broker: kept in a file, created by their first consumer."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from orbitmq import java_json
from orbitmq.broker.groups.group_table import GroupTable
from orbitmq.clock import ManualClock
from orbitmq.errors import GroupMissingError, GroupRefusedError, NameRuleError
from orbitmq.model.groups import GroupConfig
from orbitmq.model.names import PREDEFINED_GROUPS
from orbitmq.model.versions import DataVersion

# As RocketMQ 4.9.7 writes it, cut down to one group.
FILE_OF_4_9 = b"""{
\t"dataVersion":{
\t\t"counter":3,
\t\t"timestamp":1700000000123
\t},
\t"subscriptionGroupTable":{
\t\t"g":{
\t\t\t"brokerId":0,
\t\t\t"consumeBroadcastEnable":true,
\t\t\t"consumeEnable":false,
\t\t\t"consumeFromMinEnable":true,
\t\t\t"groupName":"g",
\t\t\t"notifyConsumerIdsChangedEnable":true,
\t\t\t"retryMaxTimes":3,
\t\t\t"retryQueueNums":1,
\t\t\t"whichBrokerWhenConsumeSlowly":1
\t\t}
\t}
}"""


async def loaded(folder: Path, *, auto_create: bool = True, groups_max: int = 100) -> GroupTable:
    table = GroupTable(folder, clock=ManualClock(), auto_create=auto_create, groups_max=groups_max)
    await table.load()
    return table


async def test_a_group_survives_a_restart(tmp_path: Path) -> None:
    before = await loaded(tmp_path)
    group = await before.put(GroupConfig(name="g", retries_max=3))
    await before.ensure("gone")
    assert await before.delete("gone")
    await before.forbid("g", "T", 2)

    after = await loaded(tmp_path)

    assert after.get("g") == group
    assert after.get("gone") is None
    assert after.forbidden == {"g": {"T": 2}}
    assert after.data_version == before.data_version


async def test_a_new_broker_has_the_predefined_groups(tmp_path: Path) -> None:
    table = await loaded(tmp_path)

    assert set(table.groups) == set(PREDEFINED_GROUPS)
    assert table.data_version.counter == 1


async def test_a_file_of_4_9_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "subscriptionGroup.json").write_bytes(FILE_OF_4_9)

    table = await loaded(tmp_path)

    assert table.require("g") == GroupConfig(name="g", allows_consuming=False, retries_max=3)
    assert table.data_version.counter == 4
    assert table.get("TOOLS_CONSUMER") is not None


async def test_the_file_has_rocketmqs_format(tmp_path: Path) -> None:
    await (await loaded(tmp_path)).ensure("g")

    document = java_json.decode((tmp_path / "subscriptionGroup.json").read_bytes(), dict)

    ours = {"checksum"}
    assert set(document) - ours == {"dataVersion", "forbiddenTable", "subscriptionGroupTable"}
    assert document["subscriptionGroupTable"]["g"]["retryMaxTimes"] == 16


async def test_every_change_makes_a_newer_version(tmp_path: Path) -> None:
    table = await loaded(tmp_path)
    start = table.data_version.counter

    await table.put(GroupConfig(name="g"))
    await table.put(GroupConfig(name="g"))  # changes nothing
    await table.put(GroupConfig(name="g", retries_max=1))
    await table.forbid("g", "T", 1)
    await table.forbid("g", "T", 1)  # neither
    await table.delete("g")
    assert not await table.delete("g")  # neither

    assert table.data_version.counter == start + 4


async def test_the_first_consumer_creates_its_group_once(tmp_path: Path) -> None:
    table = await loaded(tmp_path)
    start = table.data_version.counter
    assert table.find("g") == GroupConfig(name="g")
    assert table.get("g") is None

    await asyncio.gather(*(table.ensure("g") for _ in range(20)))

    assert table.get("g") == GroupConfig(name="g")
    assert table.data_version.counter == start + 1


async def test_groups_are_not_created_when_that_is_off(tmp_path: Path) -> None:
    table = await loaded(tmp_path, auto_create=False)

    assert table.find("g") is None
    with pytest.raises(GroupMissingError, match=r"autoCreateSubscriptionGroup is off \(create it"):
        await table.ensure("g")
    with pytest.raises(GroupMissingError, match="'g' does not exist"):
        table.require("g")
    await table.put(GroupConfig(name="g"))
    (group,) = await table.ensure("g")
    assert group == table.find("g") == GroupConfig(name="g")


async def test_an_invalid_name_is_refused(tmp_path: Path) -> None:
    table = await loaded(tmp_path)

    assert table.find("a b") is None
    with pytest.raises(NameRuleError):
        await table.ensure("a b")
    with pytest.raises(NameRuleError):
        await table.put(GroupConfig(name=""))
    with pytest.raises(NameRuleError):
        await table.forbid("g", "a b", 1)


async def test_an_invalid_group_is_refused(tmp_path: Path) -> None:
    table = await loaded(tmp_path, groups_max=9)

    with pytest.raises(GroupRefusedError, match=r"no attribute '\+x'"):
        await table.put(GroupConfig(name="g", attributes={"+x": "1"}))
    with pytest.raises(GroupRefusedError, match="cannot have -1 retry queues"):
        await table.put(GroupConfig(name="g", retry_queues=-1))
    await table.ensure("g")
    with pytest.raises(
        GroupRefusedError, match="9 groups, of at most 9; cannot add 1, such as 'h'"
    ):
        await table.ensure("h")


async def test_forbidden_topics_of_a_group_are_deleted_with_it(tmp_path: Path) -> None:
    table = await loaded(tmp_path)
    await table.ensure("g")
    await table.forbid("g", "T", 1)
    await table.forbid("g", "U", 3)

    await table.forbid("g", "T", 0)
    assert table.forbidden_bits("g", "U") == 3
    assert table.forbidden_bits("g", "T") == table.forbidden_bits("h", "T") == 0
    await table.delete("g")

    assert table.forbidden == {}


# --- a slave ----------------------------------------------------------------------------------

VERSION = DataVersion(counter=7, state_version=2, timestamp=9)


async def test_a_slave_has_the_groups_and_the_version_of_its_master(tmp_path: Path) -> None:
    table = await loaded(tmp_path)
    await table.ensure("gone")
    await table.forbid("gone", "T", 2)
    tools = GroupConfig(name="TOOLS_CONSUMER", retries_max=5)

    await table.follow(
        {"g": GroupConfig(name="g"), "TOOLS_CONSUMER": tools}, {"g": {"T": 4}}, VERSION
    )

    for copy in (table, await loaded(tmp_path)):
        assert set(copy.groups) == {"g", *PREDEFINED_GROUPS}
        assert copy.get("TOOLS_CONSUMER") == tools
        assert copy.forbidden == {"g": {"T": 4}}
        assert copy.data_version == VERSION


@pytest.mark.parametrize(
    ("groups", "reason"),
    [
        ({"g": GroupConfig(name="h")}, "group 'h', listed as 'g', cannot have this name"),
        ({"": GroupConfig(name="")}, "cannot have this name"),
        ({name: GroupConfig(name=name) for name in "abcdefghij"}, "of at most 9; cannot add 10"),
    ],
)
async def test_an_unusable_table_of_a_master_changes_nothing(
    tmp_path: Path, groups: dict[str, GroupConfig], reason: str
) -> None:
    table = await loaded(tmp_path, groups_max=9)
    before = table.data_version

    with pytest.raises(GroupRefusedError, match=reason):
        await table.follow(groups, {}, VERSION)

    assert set(table.groups) == set(PREDEFINED_GROUPS)
    assert table.data_version == before


async def test_too_much_forbidden_by_a_master_changes_nothing(tmp_path: Path) -> None:
    table = await loaded(tmp_path)

    with pytest.raises(GroupRefusedError, match="forbidden 100001 topics, of at most 100000"):
        await table.follow({}, {"g": {str(number): 4 for number in range(100_001)}}, VERSION)

    assert table.forbidden == {}
