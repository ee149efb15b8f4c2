"""Pulls through a filter server: only what a function accepts, and always on from there."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from orbitmq import java_json
from orbitmq.errors import SettingsError
from orbitmq.model.subscriptions import Subscription
from orbitmq.protocol.codes import RequestCode, ResponseCode, Role
from orbitmq.protocol.command import Command, request
from orbitmq.protocol.requests.clients import ConsumerGroup, Heartbeat, HeartbeatBody
from orbitmq.record.decode import decode_records
from tests.integration.broker.conftest import pull_header as broker_pull_header
from tests.integration.client.conftest import Cluster
from tests.integration.filterserver import plugins
from tests.integration.filterserver.conftest import Site, start_filter_server
from tests.waiting import until


def numbers(count: int) -> list[bytes]:
    return [str(number).encode() for number in range(count)]


async def bodies(site: Site, name: str | None, offset: int = 0) -> list[bytes]:
    return [message.body for message in await site.read(name, offset)]


# --- what matches -----------------------------------------------------------------------------


async def test_a_pull_returns_what_the_function_accepts_unchanged(site: Site) -> None:
    await site.send(*numbers(10))
    direct = await site.rpc.invoke(site.cluster.address(), request(broker_pull_header()))
    records = {message.body: message for message in decode_records(direct.body)}

    reply = await site.pull("shop.EveryThird")

    assert reply.code == ResponseCode.SUCCESS
    assert decode_records(reply.body) == [records[body] for body in (b"0", b"3", b"6", b"9")]
    assert reply.fields == {
        "suggestWhichBrokerId": "0",
        "nextBeginOffset": "10",
        "minOffset": "0",
        "maxOffset": "10",
    }


async def test_a_function_sees_tags_properties_body_and_group(site: Site) -> None:
    await site.send(b"1", TAGS="paid", region="eu")
    await site.send(b"2", TAGS="paid", region="us")
    await site.send(b"3", TAGS="open", region="eu")
    await site.send(b"g")

    assert await bodies(site, "shop.Tagged") == [b"1"]
    assert await bodies(site, "shop.OfGroup") == [b"g"]


async def test_a_class_filters_with_an_instance_that_keeps_its_state(site: Site) -> None:
    await site.send(*numbers(4))

    assert await bodies(site, "shop.Counts") == [b"0", b"2"]


async def test_a_queue_without_a_match_is_read_on_from_its_end(site: Site) -> None:
    await site.send(*numbers(100))

    offset = 0
    while offset < 100:
        reply = await site.pull("shop.Nothing", offset, count_max=10)
        assert reply.code == ResponseCode.PULL_RETRY_IMMEDIATELY
        assert not reply.body
        assert int(reply.fields["nextBeginOffset"]) > offset
        offset = int(reply.fields["nextBeginOffset"])

    assert offset == 100


async def test_what_is_outside_the_queue_or_not_there_is_answered_as_by_the_broker(
    site: Site,
) -> None:
    await site.send(b"0")

    by_broker = await site.rpc.invoke(site.cluster.address(), request(broker_pull_header("T", 50)))
    beyond = await site.pull("shop.EveryThird", 50)
    nothing = await site.pull("shop.EveryThird", 1)
    unknown = await site.pull("shop.EveryThird", topic="unknown")

    assert beyond.code == by_broker.code == ResponseCode.PULL_OFFSET_MOVED
    assert beyond.fields == by_broker.fields
    assert (nothing.code, nothing.fields["nextBeginOffset"]) == (ResponseCode.PULL_NOT_FOUND, "1")
    assert unknown.code == ResponseCode.TOPIC_NOT_EXIST
    assert "'unknown' does not exist" in unknown.remark


async def test_a_held_pull_is_answered_when_a_message_arrives(site: Site) -> None:
    held = asyncio.create_task(site.pull("shop.EveryThird", hold_ms=15_000))
    await until(lambda: len(site.cluster.brokers["broker-a"].parts.long_polls) == 1)

    await site.send(b"3")

    assert [message.body for message in decode_records((await held).body)] == [b"3"]


# --- which function ---------------------------------------------------------------------------


async def test_an_uploaded_class_is_acknowledged_and_its_source_never_run(
    site: Site, tmp_path: Path
) -> None:
    await site.send(*numbers(4))
    mark = tmp_path / "was-run"
    source = f"open({str(mark)!r}, 'w')\ndef match(message, context): return True\n".encode()

    assert (await site.name_class("shop.EveryThird", source)).code == ResponseCode.SUCCESS
    assert await bodies(site, None) == [b"0", b"3"]
    assert (await site.name_class("shop.Uploaded", source)).code == ResponseCode.SUCCESS
    reply = await site.pull(None)

    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert reply.remark.startswith("filter 'shop.Uploaded' is not installed on this filter server")
    assert "orbitmq.filters" in reply.remark
    assert not mark.exists()


async def test_without_an_upload_the_subscription_of_the_group_counts(site: Site) -> None:
    await site.send(*numbers(4))
    by_class = Subscription(topic="T", class_filter=True, expression="shop.EveryThird", version=1)
    body = HeartbeatBody(
        client_id="c", consumers=[ConsumerGroup(group="g", subscriptions=[by_class])]
    )

    unknown = await site.pull(None)
    await site.rpc.call(site.cluster.address(), Heartbeat(), java_json.encode(body))

    assert unknown.code == ResponseCode.SYSTEM_ERROR
    assert "group 'g' has named no filter class for topic 'T'" in unknown.remark
    assert await bodies(site, None) == [b"0", b"3"]


@pytest.mark.parametrize("name", ["shop.Unknown", "x" * 100_000, "../../etc/passwd", "os:system"])
async def test_an_unknown_class_is_an_error_that_lists_the_known_ones(
    site: Site, name: str
) -> None:
    reply = await site.pull(name)

    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert "is not installed on this filter server" in reply.remark
    assert "shop.EveryThird" in reply.remark
    assert len(reply.remark) < 1000


async def test_every_code_that_the_table_names_is_answered_and_no_other(site: Site) -> None:
    for code in RequestCode:
        reply = await site.rpc.invoke(site.server.address, Command(code=code))
        is_known = reply.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert is_known == (Role.FILTER_SERVER in code.answered_by), code


async def test_two_packages_with_the_same_filter_are_refused_at_the_start(
    cluster: Cluster,
    installed: None,  # noqa: ARG001  # the first package
    tmp_path: Path,
) -> None:
    plugins.write_package(tmp_path / "plugins", "other", "", {"shop.Tagged": "tagged"})

    with pytest.raises(SettingsError, match=r"two packages offer the filter shop\.Tagged"):
        await start_filter_server(cluster.address())
