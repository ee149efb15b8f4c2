"""Promotion: a slave becomes the master, and the master that it replaced its slave."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from orbitmq.errors import RemoteError
from orbitmq.protocol.codes import ResponseCode
from tests.integration.replication.group import Group
from tests.waiting import until


@pytest.fixture
async def group(tmp_path: Path) -> AsyncIterator[Group]:
    async with Group(tmp_path) as group:
        yield group


async def test_a_promoted_slave_keeps_the_messages_and_takes_new_ones(group: Group) -> None:
    await group.pair()
    for _ in range(5):
        await group.send()
    await group.until_copied()
    await group.kill(0)

    promoted = await group.promote(1)
    reply = await group.send(broker_id=1)

    assert reply.code == ResponseCode.SUCCESS
    assert reply.fields["queueOffset"] == "5"
    standing = await group.standing(1)
    assert (standing.broker_id, standing.is_master, standing.epoch) == (0, True, 1)
    assert [(one.epoch, one.offset, one.former_id) for one in standing.epochs] == [
        (1, promoted.log_end, 1)
    ]


async def test_a_promoted_slave_has_topics_that_its_master_died_before_it_told_of(
    group: Group,
) -> None:
    _, slave = await group.pair()
    # Tables were copied just now; they are again in three seconds.
    await group.send(topic="known")
    await until(lambda: slave.topics.get("known") is not None)
    await group.send(topic="new")
    await group.until_copied()
    await group.kill(0)

    await group.promote(1)

    reply = await group.pull(1, topic="new")
    assert reply.code == ResponseCode.SUCCESS
    assert (await group.send(broker_id=1, topic="new")).fields["queueOffset"] == "1"


async def test_a_promoted_slave_is_master_after_a_restart(group: Group) -> None:
    await group.pair()
    await group.send()
    await group.until_copied()
    await group.stop(0)
    await group.promote(1)

    await group.stop(1)
    await group.start(1)

    assert (await group.standing(1)).is_master
    assert (await group.send(broker_id=1)).fields["queueOffset"] == "1"


async def test_the_replaced_master_returns_as_a_slave(group: Group) -> None:
    await group.pair()
    await group.send()
    await group.until_copied()
    await group.kill(0)
    await group.promote(1)
    await group.send(broker_id=1)

    await group.start(0)
    await group.until_linked(master=1)
    await group.until_copied(0, master=1)

    standing = await group.standing(0)
    assert (standing.broker_id, standing.role, standing.epoch) == (1, "SLAVE", 1)
    assert group.log_of(0) == group.log_of(1)


async def test_what_only_the_replaced_master_had_is_saved_and_cut(group: Group) -> None:
    await group.pair()
    await group.send(b"both")
    await group.until_copied()
    await group.stop(1)
    await group.send(b"only the old master")
    await group.kill(0)
    await group.start(1)
    promoted = await group.promote(1)
    await group.send(b"only the new master", broker_id=1)

    await group.start(0)
    await group.until_linked(master=1)
    await group.until_copied(0, master=1)

    assert group.log_of(0) == group.log_of(1)
    (saved,) = (group.folder / "0" / "orbitmq" / "cut").glob("1-*")
    assert int(saved.name.split("-")[1]) == promoted.log_end
    content = b"".join(file.read_bytes() for file in saved.rglob("*") if file.is_file())
    assert b"only the old master" in content


async def test_a_running_master_that_is_replaced_stops_to_acknowledge(group: Group) -> None:
    await group.pair()
    await group.send()
    await group.until_copied()

    await group.promote(1, force=True)
    await group.until_role(0, "SLAVE")
    await group.until_copied(0, master=1)

    refused = await group.send(broker_id=0)
    assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert (await group.standing(0)).epoch == 1


async def test_two_promotions_bring_the_first_master_back(group: Group) -> None:
    await group.pair()
    await group.send()
    await group.until_copied()
    await group.promote(1, force=True)
    await group.until_role(0, "SLAVE")
    await group.until_copied(0, master=1)

    await group.promote(0, epoch=2, force=True)
    await group.until_role(1, "SLAVE")
    await group.until_copied(1)

    standings = [await group.standing(number) for number in (0, 1)]
    assert [(one.broker_id, one.is_master, one.epoch) for one in standings] == [
        (0, True, 2),
        (1, False, 2),
    ]
    # Both are what the configuration says again.
    assert (await group.send()).code == ResponseCode.SUCCESS


async def test_the_other_slave_follows_the_promoted_one(group: Group) -> None:
    await group.pair(slaves=2)
    await group.send()
    await group.until_copied(1)
    await group.until_copied(2)
    await group.kill(0)

    await group.promote(1)
    await group.send(broker_id=1)
    await group.until_copied(2, master=1)
    await group.start(0)
    await group.until_linked(2, master=1)

    standings = [await group.standing(number) for number in (0, 1, 2)]
    assert [one.broker_id for one in standings] == [1, 0, 2]
    assert {one.epoch for one in standings} == {1}


async def test_a_slave_is_not_promoted_while_its_master_answers(group: Group) -> None:
    await group.pair()
    await group.send()
    await group.until_copied()

    with pytest.raises(RemoteError, match="answers"):
        await group.promote(1)

    await group.send()
    await group.until_copied()


@pytest.mark.parametrize(
    ("broker_id", "fields", "reason"),
    [
        (0, {}, "is a master already"),
        (1, {"epoch": 0}, "not larger"),
        (1, {"role": "SLAVE"}, "no role of a master"),
    ],
)
async def test_a_wrong_promotion_is_refused(
    group: Group, broker_id: int, fields: dict[str, object], reason: str
) -> None:
    await group.pair()
    await group.send()
    await group.until_copied()

    with pytest.raises(RemoteError, match=reason):
        await group.promote(broker_id, **{"force": True, **fields})  # type: ignore[arg-type]


async def test_an_empty_slave_is_not_promoted(group: Group) -> None:
    await group.pair()

    with pytest.raises(RemoteError, match="copied nothing"):
        await group.promote(1, force=True)
