"""Promotion: a slave becomes the master, and the master that it replaced its slave."""

from __future__ import annotations

import asyncio
import dataclasses
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from orbitmq.clock import SystemClock
from orbitmq.errors import RemoteError
from orbitmq.model.queues import PhysicalOffset
from orbitmq.model.versions import DataVersion
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import Command
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.registration import encode_register_body
from orbitmq.protocol.requests.replication import ReadStanding, Standing
from orbitmq.transport.config import ServerConfig
from orbitmq.transport.connection import Connection
from orbitmq.transport.request_loop import Handler
from orbitmq.transport.rpc_server import RpcServer
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


async def test_a_replaced_master_stays_a_slave_whatever_role_it_is_configured_with(
    group: Group,
) -> None:
    await group.pair()
    await group.send()
    await group.until_copied()
    await group.kill(0)
    await group.promote(1)
    await group.start(0)
    await group.until_copied(0, master=1)
    await group.stop(1)
    await group.stop(0)

    await group.start(0, brokerRole="SYNC_MASTER")

    standing = await group.standing(0)
    assert (standing.role, standing.broker_id, standing.epoch) == ("SLAVE", 1, 1)
    await group.promote(0, epoch=2)
    assert (await group.standing(0)).is_master


async def test_of_two_masters_of_one_epoch_one_stops_to_acknowledge_and_report(
    group: Group,
) -> None:
    await group.pair(slaves=2)
    await group.send()
    await group.until_copied(1)
    await group.until_copied(2)
    await group.kill(0)

    # Neither knows of the other's promotion.
    await asyncio.gather(*(group.ask_to_promote(number, epoch=1) for number in (1, 2)))
    for number in (1, 2):
        await group.until_role(number, "ASYNC_MASTER")
        await group.brokers[number].parts.registration.register_all()

    replies = {number: await group.send(broker_id=number) for number in (1, 2)}
    (serving,) = [number for number in (1, 2) if replies[number].code == ResponseCode.SUCCESS]
    stopped = 3 - serving
    assert "both have epoch 1" in (replies[stopped].remark or "")
    for number in (1, 2):
        await group.brokers[number].parts.registration.register_all()
    assert group.master_in_routes() == group.address(serving)
    # It is a master that operators have to deal with all the same.
    assert (await group.standing(stopped)).is_master


async def test_a_stranger_does_not_unseat_a_master(group: Group) -> None:
    await group.pair()
    await group.send()
    await group.until_copied()
    forged = Standing(
        broker_name="group-a",
        broker_id=0,
        address="",
        role="ASYNC_MASTER",
        is_master=True,
        epoch=1 << 40,
        log_start=0,
        log_end=0,
        flushed=0,
        visible=0,
    )
    asked = asyncio.Event()

    def answer(_: Connection, command: Command) -> Command:
        asked.set()
        return command.reply(body=msgspec.json.encode(forged))

    handlers: dict[int, Handler] = {RequestCode.READ_STANDING: answer}
    config = ServerConfig(bind_address="127.0.0.1", listen_port=0)
    stranger = RpcServer(handlers, config=config)
    await stranger.start()
    claim = ReadStanding(
        broker_name="group-a",
        epoch=Long(forged.epoch),
        broker_address=f"127.0.0.1:{stranger.port}",
    )
    await group.rpc.call(group.address(0), claim)
    await group.brokers[0].parts.registration.register_all()
    await stranger.stop()

    assert (await group.send()).code == ResponseCode.SUCCESS
    assert not asked.is_set()


async def test_an_epoch_does_not_jump_to_the_end_of_all_numbers(group: Group) -> None:
    await group.pair()
    await group.send()
    await group.until_copied()

    with pytest.raises(RemoteError, match="each promotion takes the next one"):
        await group.promote(1, epoch=2**63 - 1, force=True)


async def test_a_slave_that_was_the_master_is_not_in_the_way(group: Group) -> None:
    await group.pair(slaves=2)
    await group.send()
    await group.until_copied(1)
    await group.until_copied(2)
    await group.stop(0)
    await group.start(0, brokerRole="SLAVE", brokerId="7")

    await group.promote(1)

    assert (await group.standing(1)).is_master


async def test_a_returning_master_takes_no_id_of_a_broker_that_is_down(group: Group) -> None:
    await group.pair(slaves=2)
    await group.send()
    await group.until_copied(1)
    await group.until_copied(2)
    await group.kill(0)
    await group.until_missed(0)
    await group.promote(2)
    await group.until_copied(1, master=2)
    await group.kill(1)
    await group.kill(2)
    await group.until_missed(1)

    await group.start(0)

    assert (await group.standing(0)).broker_id == 2


async def test_a_promoted_sync_master_shows_what_readers_of_the_last_one_saw(
    group: Group,
) -> None:
    await group.pair(options={"brokerRole": "SYNC_MASTER"})
    for _ in range(3):
        await group.send()
    await group.until_copied()
    hidden = group.brokers[1].store
    await group.kill(0)
    hidden.limit_visible(PhysicalOffset(0))
    end = hidden.log_end

    await group.promote(1, role="SYNC_MASTER")

    assert group.brokers[1].store.visible == end


async def test_a_promotion_waits_only_briefly_for_a_broker_that_hangs(group: Group) -> None:
    await group.pair()
    await group.send()
    await group.until_copied()
    # The kernel accepts connections, and nobody answers.
    hanging = socket.create_server(("127.0.0.1", 0))
    port = hanging.getsockname()[1]
    identity = dataclasses.replace(
        group.brokers[1].identity, broker_id=Long(2), broker_address=f"127.0.0.1:{port}"
    )
    await group.kill(0)
    await group.rpc.call(group.namesrv, identity, encode_register_body({}, DataVersion()))
    clock = SystemClock()
    began_ms = clock.monotonic_ms()

    with hanging:
        await group.promote(1, force=True)
        took_ms = clock.monotonic_ms() - began_ms

    # It asks twice, where a broker that starts otherwise waits 3 s each time.
    assert 1000 <= took_ms < 5000
