"""What a filter server takes from outside is bounded; what it holds for others ends."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.command import request
from tests.integration.broker.conftest import send_header
from tests.integration.client.conftest import HERE, Cluster
from tests.integration.filterserver.conftest import Site, pull_header
from tests.waiting import WAIT_SECONDS, until, until_reached


@pytest.mark.parametrize(
    "fields",
    [{"consumer_group": ""}, {"topic": "t" * 300}, {"class_name": "c" * 300}],
    ids=lambda fields: next(iter(fields)),
)
async def test_names_that_are_empty_or_too_long_are_refused(
    site: Site, fields: dict[str, Any]
) -> None:
    reply = await site.name_class("shop.EveryThird", **fields)

    assert reply.code == ResponseCode.INVALID_PARAMETER
    assert reply.remark.endswith("(it takes 1 to 255)")
    assert len(site.server.classes) == 0


async def test_a_huge_source_is_refused_and_a_large_one_not_kept(site: Site) -> None:
    large = await site.name_class("shop.EveryThird", b"x" * (1 << 20))
    huge = await site.name_class("shop.Tagged", b"x" * ((1 << 20) + 1))
    await site.send(b"3")

    assert large.code == ResponseCode.SUCCESS
    assert huge.code == ResponseCode.SYSTEM_ERROR
    assert [message.body for message in await site.read(None)] == [b"3"]


class TestSlowFunctions:
    """With one process a function, and room for little."""

    @pytest.fixture
    def options(self) -> dict[str, str]:
        return {"workersPerFilter": "1", "filterWaitingBytesMax": str(1 << 20)}

    async def test_messages_that_wait_for_a_slow_function_are_bounded(self, site: Site) -> None:
        await site.send(b"hang" + b" " * 200_000, b"hang")
        pulls = [asyncio.create_task(site.pull("shop.Slow", count_max=1)) for _ in range(20)]

        replies = await asyncio.gather(*pulls)

        codes = {reply.code for reply in replies}
        busy = [reply for reply in replies if reply.code == ResponseCode.SYSTEM_BUSY]
        assert codes == {ResponseCode.SUCCESS, ResponseCode.SYSTEM_BUSY}
        assert "filter shop.Slow is too slow for its consumers" in busy[0].remark
        assert (await site.pull("shop.Nothing", 1)).code == ResponseCode.PULL_RETRY_IMMEDIATELY


class TestIdleProcesses:
    """With processes that end after a second."""

    @pytest.fixture
    def options(self) -> dict[str, str]:
        return {"filterIdleSeconds": "1"}

    async def test_a_process_that_is_not_used_ends(self, site: Site) -> None:
        await site.send(b"3")
        await site.read("shop.EveryThird")
        workers = site.server.workers["shop.EveryThird"]

        await until(lambda: not workers.process_ids)

        assert [message.body for message in await site.read("shop.EveryThird")] == [b"3"]


async def test_it_registers_again_when_its_broker_is_back(site: Site) -> None:
    cluster = site.cluster
    assert cluster.brokers["broker-a"].parts.filter_servers.addresses == [site.server.address]

    await cluster.stop_broker()
    lost = await site.pull("shop.EveryThird")
    broker = await cluster.start_broker()

    await until(lambda: broker.parts.filter_servers.addresses == [site.server.address])
    assert lost.code == ResponseCode.SYSTEM_ERROR
    assert (await site.pull("shop.EveryThird")).code == ResponseCode.PULL_NOT_FOUND


async def test_a_stop_answers_held_pulls_and_leaves_the_broker(site: Site) -> None:
    held = asyncio.create_task(site.pull("shop.EveryThird", hold_ms=15_000))
    broker = site.cluster.brokers["broker-a"]
    await until(lambda: len(broker.parts.long_polls) == 1)

    await site.server.stop()

    reply = await held
    assert reply.code == ResponseCode.PULL_NOT_FOUND
    assert reply.fields["nextBeginOffset"] == "0"
    await until(lambda: not broker.parts.filter_servers.addresses)


# --- the process ------------------------------------------------------------------------------


@pytest.fixture
def process(
    cluster: Cluster,
    installed: None,  # noqa: ARG001  # what it finds
    tmp_path: Path,
) -> Iterator[subprocess.Popen[bytes]]:
    command = [str(Path(sys.executable).with_name("orbitmq")), "filterserver", "--host", HERE]
    command.append("--set=filterTimeLimitMillis=500")
    with (tmp_path / "log").open("wb") as log:
        started = subprocess.Popen(
            [*command, "--broker", cluster.address()], stderr=log, cwd=tmp_path
        )
    yield started
    started.kill()
    started.wait(WAIT_SECONDS)


def children(process_id: int) -> list[int]:
    listed = Path(f"/proc/{process_id}/task/{process_id}/children").read_text()
    return [int(child) for child in listed.split()]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_a_process_that_ends_leaves_none_of_its_own_behind(
    cluster: Cluster, process: subprocess.Popen[bytes], number: int
) -> None:
    broker = cluster.brokers["broker-a"]
    await cluster.make_topic("T", queues=1)
    await until(lambda: broker.parts.filter_servers.addresses)
    (address,) = broker.parts.filter_servers.addresses
    nothing = request(pull_header("shop.Counts"))
    await cluster.rpc.invoke(cluster.address(), request(send_header("T"), b"hang"))
    await cluster.rpc.invoke(address, nothing, timeout_ms=WAIT_SECONDS * 1000)
    hanging = asyncio.create_task(
        cluster.rpc.invoke(address, request(pull_header("shop.Hangs")), timeout_ms=30_000)
    )
    await until(lambda: len(children(process.pid)) == 2)
    started = children(process.pid)

    process.send_signal(number)
    await asyncio.gather(hanging, return_exceptions=True)

    await until_reached(
        lambda: not any(Path(f"/proc/{child}").exists() for child in started),
        timeout_s=WAIT_SECONDS,
        what="its processes ended",
    )
    await until(lambda: not broker.parts.filter_servers.addresses)
    assert await asyncio.to_thread(process.wait, WAIT_SECONDS) == (
        0 if number == signal.SIGTERM else -signal.SIGKILL
    )
