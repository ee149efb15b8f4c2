"""Filter functions that fail, hang, die or are slow: errors on their pulls, and nobody else's."""

from __future__ import annotations

import asyncio
import logging
import os

import pytest

from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.command import Command
from orbitmq.record.decode import decode_records
from tests.integration.filterserver.conftest import Site
from tests.integration.filterserver.plugins import SOURCE
from tests.waiting import until


@pytest.fixture
def options() -> dict[str, str]:
    return {"filterTimeLimitMillis": "1000", "workersPerFilter": "1"}


def is_running(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    return True


def bodies(reply: Command) -> list[bytes]:
    return [message.body for message in decode_records(reply.body)]


async def test_messages_before_a_failure_are_delivered_and_the_failure_names_its_cause(
    site: Site,
) -> None:
    await site.send(b"0", b"1", b"poison", b"3")

    before = await site.pull("shop.Poison")
    failed = await site.pull("shop.Poison", 2)
    after = await site.pull("shop.Poison", 3)

    assert (bodies(before), before.fields["nextBeginOffset"]) == ([b"0", b"1"], "2")
    assert failed.code == ResponseCode.SYSTEM_ERROR
    assert failed.remark.startswith("filter shop.Poison: ValueError: cannot read this order, at ")
    assert "shop_filters.py:" in failed.remark
    assert failed.remark.endswith(" at offset 2")
    assert bodies(after) == [b"3"]


def line_of(text: str) -> int:
    return 1 + next(at for at, line in enumerate(SOURCE.splitlines()) if line.endswith(text))


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("shop.Json", line_of("# json")),
        ("shop.JsonClass", line_of("# json of a class")),
        ("shop.Forgets", line_of("def forgets_to_return(message, context):")),
    ],
)
async def test_a_failure_names_the_line_of_the_function_not_of_a_library(
    site: Site, name: str, line: int
) -> None:
    await site.send(b"no JSON")

    failed = await site.pull(name)

    assert f"/shop_filters.py:{line}; message " in failed.remark


async def test_a_failure_that_repeats_is_logged_once(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    await site.send(b"poison", b"poison", b"no JSON")

    for _ in range(3):
        # Another message is the same failure.
        await site.pull("shop.Poison", 0)
        await site.pull("shop.Poison", 1)
    await site.pull("shop.Json", 2)

    logged = [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]
    poison, other = (line for line in logged if "shop." in line)
    assert "reason=filter shop.Poison: ValueError: cannot read this order, at " in poison
    assert "filter shop.Json: JSONDecodeError" in other


async def test_a_broken_function_fails_its_own_pulls_only(site: Site) -> None:
    causes = {
        "shop.Hangs": "it took longer than 1000 ms and was killed",
        "shop.HangsInC": "it took longer than 1000 ms and was killed",
        "shop.Dies": "its process ended with exit code 3",
        "shop.Leaves": "SystemExit: enough",
        "shop.Eats": "MemoryError",
        "shop.Forgets": "TypeError: it returned NoneType, not True or False",
        "shop.Coroutine": "TypeError: it returned coroutine, not True or False",
        "shop.NoFunction": "shop_filters:not_a_function is a int",
        "shop.Missing": "cannot be loaded: AttributeError",
    }
    await site.send(b"hang")

    broken = {name: asyncio.create_task(site.pull(name)) for name in causes}
    other = await site.pull("shop.Nothing")

    assert other.code == ResponseCode.PULL_RETRY_IMMEDIATELY
    for name, cause in causes.items():
        reply = await broken[name]
        assert reply.code == ResponseCode.SYSTEM_ERROR
        assert reply.remark.startswith(f"filter {name}: ")
        assert cause in reply.remark


async def test_a_killed_function_works_again_on_the_next_pull(site: Site) -> None:
    await site.send(b"hang", b"1")

    failed = await site.pull("shop.Hangs")

    assert failed.code == ResponseCode.SYSTEM_ERROR
    assert bodies(await site.pull("shop.Hangs", 1)) == [b"1"]


async def test_a_slow_function_gets_through_a_batch_in_several_pulls(site: Site) -> None:
    sent = [str(number).encode() for number in range(10)]
    await site.send(*sent)

    found: list[bytes] = []
    offset = pulls = 0
    while offset < len(sent):
        reply = await site.pull("shop.Slow", offset)
        assert reply.code == ResponseCode.SUCCESS, reply.remark
        found += bodies(reply)
        offset = int(reply.fields["nextBeginOffset"])
        pulls += 1

    assert found == sent
    assert pulls > 1


async def test_no_process_outlives_the_filter_server(site: Site) -> None:
    await site.send(b"hang")
    hanging = asyncio.create_task(site.pull("shop.Hangs"))
    await site.pull("shop.Nothing")
    await until(lambda: site.server.workers["shop.Hangs"].process_ids)
    process_ids = [
        process_id for workers in site.server.workers.values() for process_id in workers.process_ids
    ]

    await site.server.stop()
    await asyncio.gather(hanging, return_exceptions=True)

    assert len(process_ids) == 2
    assert not any(map(is_running, process_ids))
