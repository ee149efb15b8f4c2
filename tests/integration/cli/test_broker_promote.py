"""`orbitmq broker promote` of real slaves, and what it says beforehand."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from orbitmq.cli.main import command_for
from orbitmq.client.aio.admin import Admin
from orbitmq.errors import NameServersUnreachableError, PromotionError
from orbitmq.protocol.codes import ResponseCode
from tests.integration.replication.group import Group
from tests.waiting import until

ASYNC = {"brokerRole": "ASYNC_MASTER"}
SYNC = {"brokerRole": "SYNC_MASTER"}


@pytest.fixture
async def group(tmp_path: Path) -> AsyncIterator[Group]:
    async with Group(tmp_path) as group:
        yield group


async def promote(group: Group, *flags: str, of: str = "group-a", typed: str = "") -> Result:
    """Run the command beside the brokers."""
    words = ["broker", "promote", of, "--namesrv", group.namesrv, *flags]
    return await asyncio.to_thread(CliRunner().invoke, command_for(words), words, input=typed)


async def planned(group: Group, *flags: str) -> dict[str, Any]:
    result = await promote(group, "--dry-run", "--json", *flags)
    return dict(json.loads(result.stdout))


async def test_the_slave_of_a_dead_master_becomes_the_master(group: Group) -> None:
    await group.pair(options=SYNC)
    await group.create_topic()
    await group.send()
    await group.until_copied()
    await group.kill(0)

    result = await promote(group, "--yes")

    assert result.exit_code == 0, result.output
    assert "becomes SYNC_MASTER at epoch 1" in result.stdout
    assert "kept: what was acknowledged as SEND_OK, since the master waited for 1 slave" in (
        result.stdout
    )
    assert f"{group.address(1)} is the master of group-a since epoch 1" in result.stdout
    assert "warning" not in result.stdout
    reply = await group.send(broker_id=1)
    # It waits for slaves, as the last master did.
    assert reply.code == ResponseCode.SLAVE_NOT_AVAILABLE
    assert reply.fields["queueOffset"] == "1"


async def test_topics_in_memory_are_named_since_their_messages_are_lost(group: Group) -> None:
    await group.pair(options=SYNC)
    await group.create_topic("prices", attributes="+orbitmq.storage=memory")
    await group.send()
    await until(lambda: group.brokers[1].topics.get("prices") is not None)
    await group.stop(0)

    shown = await promote(group, "--dry-run")

    assert "lost: all messages in memory, of prices" in shown.stdout
    assert (await planned(group))["memory_topics"] == ["prices"]


async def test_a_drain_outlasts_a_promotion_and_so_does_its_end(group: Group) -> None:
    async def permission(broker_id: int) -> str:
        async with Admin(namesrv=group.namesrv) as admin:
            return (await admin.brokers.options(group.address(broker_id)))["brokerPermission"]

    await group.pair(options=SYNC)
    await group.create_topic()
    await group.send()
    await group.until_copied()
    async with Admin(namesrv=group.namesrv) as admin:
        await admin.brokers.set_options(group.address(0), {"brokerPermission": "4"})
    await until(lambda: permission_seen(group, 1) == 4)
    await group.kill(0)

    result = await promote(group, "--yes")

    assert "drained: group-a takes no messages after this either" in result.stdout
    assert await permission(1) == "4"
    assert (await group.send(broker_id=1)).code == ResponseCode.NO_PERMISSION
    async with Admin(namesrv=group.namesrv) as admin:
        await admin.brokers.set_options(group.address(1), {"brokerPermission": "6"})
    # Its own file still says that it is drained.
    await group.start(0)
    await group.until_copied(0, master=1)
    await until(lambda: permission_seen(group, 0) == 6)
    await group.stop(1)
    again = await promote(group, "--yes")
    assert "drained" not in again.stdout
    assert await permission(0) == "6"


def permission_seen(group: Group, slave: int) -> int | None:
    """What a slave knows of the permission of its master."""
    following = group.brokers[slave].replication.following
    return following.seen.permission if following is not None and following.seen else None


async def test_nothing_is_done_without_a_yes(group: Group) -> None:
    await group.pair()
    await group.send()
    await group.until_copied()
    await group.kill(0)

    refused = await promote(group, typed="n\n")
    dry = await promote(group, "--dry-run")

    assert refused.exit_code == 5
    assert dry.exit_code == 0
    assert (await group.standing(1)).role == "SLAVE"
    assert "the master waited for no slave" in dry.stdout


async def test_a_master_that_answers_stays_unless_forced(group: Group) -> None:
    await group.pair()
    await group.send()
    await group.until_copied()

    refused = await promote(group, "--yes")
    assert isinstance(refused.exception, PromotionError)
    # Said once: above the error.
    assert "obstacle: the master 127.0.0.1" in refused.stdout
    assert "the master 127.0.0.1" not in str(refused.exception)
    assert "--force" in str(refused.exception)
    assert (await group.send()).code == ResponseCode.SUCCESS

    forced = await promote(group, "--yes", "--force")
    assert forced.exit_code == 0, forced.output
    await group.until_role(0, "SLAVE")
    assert (await group.standing(1)).is_master


async def test_what_only_an_answering_master_has_is_counted(group: Group) -> None:
    await group.pair(options=ASYNC)
    await group.create_topic()
    await group.send()
    await group.until_copied()
    slave_end = group.brokers[1].store.log_end
    await group.stop(1)
    for _ in range(3):
        await group.send(b"only the master has it")
    await group.start(1, haMasterAddress="127.0.0.1:1")

    plan = await planned(group)
    shown = await promote(group, "--dry-run")

    master_end = group.brokers[0].store.log_end
    assert [(one["start"], one["end"], one["is_up"]) for one in plan["lost"]] == [
        (slave_end, master_end, True)
    ]
    assert plan["lost_messages"] == [{"topic": "T", "queue": 0, "kept": 1, "end": 4}]
    assert "lost: 3 messages of T" in shown.stdout
    assert f"from {slave_end} to {master_end}, which {group.address(0)} has" in shown.stdout


async def test_what_a_dead_master_was_heard_to_have_is_named(group: Group) -> None:
    await group.pair(slaves=2, options=ASYNC)
    await group.create_topic()
    await group.send()
    await group.until_copied(1)
    await group.until_copied(2)
    short_end = group.brokers[1].store.log_end
    await group.stop(1)
    await group.send(b"one slave has it")
    await group.until_copied(2)
    long_end = group.brokers[2].store.log_end
    await group.kill(0)
    await group.start(1)
    await until(lambda: group.brokers[1].is_serving_as("SLAVE"))

    plan = await planned(group, "--slave", "1")
    best = await planned(group)

    assert plan["log_end"] == short_end
    assert any("has more: epoch 0 and a log up to" in one for one in plan["obstacles"])
    assert [(one["start"], one["end"]) for one in plan["lost"]] == [(short_end, long_end)] * 2
    assert plan["lost_messages"] == [{"topic": "T", "queue": 0, "kept": 1, "end": 2}]
    assert plan["kept"]["T"] == {"0": 1}
    # Without a wish, the slave that has most.
    assert (best["slave"], best["log_end"]) == (group.address(2), long_end)
    assert best["obstacles"] == []
    assert best["lost"] == []


async def test_a_slave_that_has_less_than_another_is_promoted_by_force_only(group: Group) -> None:
    await group.pair(slaves=2)
    await group.create_topic()
    await group.send()
    await group.until_copied(1)
    await group.until_copied(2)
    await group.stop(1)
    await group.send()
    await group.until_copied(2)
    await group.kill(0)
    await group.start(1)

    refused = await promote(group, "--yes", "--slave", group.address(1))
    assert isinstance(refused.exception, PromotionError)
    assert (await group.standing(1)).role == "SLAVE"

    forced = await promote(group, "--yes", "--slave", group.address(1), "--force")
    assert forced.exit_code == 0, forced.output
    assert "lost: 1 message of T" in forced.stdout
    await group.until_copied(2, master=1)
    assert group.log_of(1) == group.log_of(2)


async def test_a_silent_slave_that_may_have_more_is_an_obstacle(group: Group) -> None:
    await group.pair(slaves=2, options=SYNC)
    await group.create_topic()
    await group.send()
    await group.until_copied(1)
    await group.until_copied(2)
    silent = group.address(2)
    await group.kill(2)
    await group.kill(0)

    plan = await planned(group)

    assert plan["slaves_awaited"] == 1
    assert plan["obstacles"] == [
        f"broker 2 at {silent} does not answer, and may have acknowledged messages that this slave "
        "has not"
    ]


async def test_a_restarted_slave_does_not_know_what_its_master_had(group: Group) -> None:
    await group.pair()
    await group.create_topic()
    await group.send()
    await group.until_copied()
    await group.kill(0)
    await group.stop(1)
    await group.start(1)

    result = await promote(group, "--dry-run", of=group.address(1))
    given = await promote(group, "--dry-run", "--role", "SYNC_MASTER")

    # It would otherwise be an async master where the last one waited for its slaves.
    assert result.exit_code == 1
    assert "nobody who answers knows the role of the last master" in result.stdout
    assert given.exit_code == 0, given.output
    assert "what the last master had is not known" in given.stdout


async def test_one_of_two_name_servers_is_enough(group: Group) -> None:
    await group.pair()
    await group.send()
    await group.until_copied()
    await group.kill(0)

    result = await promote(group, "--yes", "--namesrv", f"127.0.0.1:1;{group.namesrv}")

    assert result.exit_code == 0, result.output
    assert "the name server 127.0.0.1:1 does not name it yet" in result.stdout
    assert (await group.standing(1)).is_master


async def test_a_slave_can_be_promoted_by_its_address_without_any_name_server(group: Group) -> None:
    await group.pair()
    await group.send()
    await group.until_copied()
    await group.kill(0)

    result = await promote(group, "--yes", "--namesrv", "127.0.0.1:1", of=group.address(1))

    assert result.exit_code == 0, result.output
    assert (await group.standing(1)).is_master


async def test_a_slave_that_missed_an_epoch_lacks_what_was_stored_since(group: Group) -> None:
    await group.pair(slaves=2, options=SYNC)
    await group.send()
    await group.until_copied(1)
    await group.until_copied(2)
    await group.stop(2)
    await group.kill(0)
    await group.promote(1, role="SYNC_MASTER")
    await group.kill(1)
    await group.start(2)

    plan = await planned(group, "--role", "SYNC_MASTER")

    assert (plan["epoch"], plan["is_known"]) == (2, False)
    assert any("there was a master of epoch 1" in one for one in plan["obstacles"])


async def test_a_slave_that_nobody_remembers_may_have_more(group: Group) -> None:
    await group.pair(slaves=2, options=SYNC)
    await group.create_topic()
    await group.send()
    await group.until_copied(1)
    await group.until_copied(2)
    await group.stop(2)
    await group.kill(0)

    plan = await planned(group)

    assert any("the master had 2 slaves, and 1 of them" in one for one in plan["obstacles"])


async def test_a_group_that_has_its_master_says_so(group: Group) -> None:
    await group.pair()
    await group.send()
    await group.until_copied()
    await group.kill(0)
    await promote(group, "--yes")

    again = await promote(group, "--yes")

    assert f"its master is {group.address(1)}, at epoch 1" in str(again.exception)


async def test_a_log_that_differs_from_the_masters_is_named_with_its_range(
    group: Group, tmp_path: Path
) -> None:
    await group.pair()
    await group.create_topic()
    await group.send()
    await group.until_copied()
    same_until = group.brokers[0].store.log_end
    await group.stop(0)
    await asyncio.to_thread(shutil.copytree, tmp_path / "0", tmp_path / "before")
    await group.start(0)
    await group.until_linked()
    await group.send(b"lost by the master")
    await group.until_copied()
    await group.stop(1)
    await group.stop(0)
    await asyncio.to_thread(shutil.rmtree, tmp_path / "0")
    (tmp_path / "before").rename(tmp_path / "0")
    await group.start(0)
    await group.send(b"another one, at the same place")
    slave = await group.start(1)
    following = slave.replication.following
    assert following is not None
    await until(lambda: following.differs_from is not None)

    plan = await planned(group)

    assert any(
        one.startswith(f"from {same_until} to {slave.store.log_end} its log is not that of")
        for one in plan["obstacles"]
    )


@pytest.mark.parametrize(
    ("of", "flags", "said"),
    [
        ("group-b", [], "there is no broker 'group-b'"),
        ("group-a", ["--slave", "7"], "there is no slave '7'"),
        ("group-a", ["--slave", "0"], "it is the master"),
        ("127.0.0.1:1", [], "cannot be promoted"),
    ],
)
async def test_a_wrong_slave_is_an_error_that_names_it(
    group: Group, of: str, flags: list[str], said: str
) -> None:
    await group.pair()

    result = await promote(group, "--yes", *flags, of=of)

    assert result.exit_code != 0
    assert said in str(result.exception)


async def test_a_group_without_a_slave_says_so(group: Group) -> None:
    await group.start(0)

    result = await promote(group, "--yes")

    assert isinstance(result.exception, PromotionError)
    assert "group-a has no slave that answers" in str(result.exception)
    assert result.exception.hint.endswith("start a slave first")


async def test_without_a_name_server_the_user_learns_which_flag_to_change() -> None:
    words = ["broker", "promote", "group-a", "--namesrv", "127.0.0.1:1"]

    result = await asyncio.to_thread(CliRunner().invoke, command_for(words), words)

    assert isinstance(result.exception, NameServersUnreachableError)
    assert "no name server answers: 127.0.0.1:1" in str(result.exception)
