"""One instance per event loop and client id, with counted users."""

from __future__ import annotations

import asyncio
import os

import pytest

from orbitmq.client.aio.instance.instances import acquire, client_id_of, release, with_own_instance
from orbitmq.client.options import ClientOptions
from orbitmq.clock import ManualClock
from orbitmq.errors import SettingsError, StateError
from tests.unit.client.scripts import run_script

OPTIONS = ClientOptions(namesrv="127.0.0.1:1", client_ip="10.0.0.1", instance_name="shared")


def test_a_client_id_is_address_instance_and_unit() -> None:
    assert client_id_of(OPTIONS) == "10.0.0.1@shared"
    with_unit = ClientOptions(client_ip="10.0.0.1", instance_name="i", unit_name="u")
    assert client_id_of(with_unit) == "10.0.0.1@i@u"
    assert client_id_of(ClientOptions()).endswith("@DEFAULT")


def test_the_default_instance_name_becomes_a_unique_one() -> None:
    clock = ManualClock()
    first, second = (with_own_instance(ClientOptions(), clock) for _ in range(2))

    assert first.instance_name != second.instance_name
    assert first.instance_name.startswith(f"{os.getpid()}#")
    assert with_own_instance(OPTIONS, clock) is OPTIONS


async def test_clients_of_one_id_share_an_instance_until_the_last_one_releases_it() -> None:
    first, second = await asyncio.gather(acquire(OPTIONS), acquire(OPTIONS))
    assert first is second

    await release(first)
    third = await acquire(OPTIONS)
    assert third is first
    await release(first)
    await release(first)

    with pytest.raises(StateError, match="is stopped"):
        await first.rpc.connection("127.0.0.1:1")
    again = await acquire(OPTIONS)
    assert again is not first
    await release(again)
    await release(first)


async def test_other_name_servers_under_the_same_id_are_refused() -> None:
    instance = await acquire(OPTIONS)
    other = ClientOptions(namesrv="127.0.0.1:2", client_ip="10.0.0.1", instance_name="shared")

    with pytest.raises(StateError, match="give this client another instance_name"):
        await acquire(other)

    await release(instance)


async def test_a_failed_start_leaves_nothing_behind() -> None:
    nowhere = ClientOptions(client_ip="10.0.0.1", instance_name="nowhere")

    with pytest.raises(SettingsError, match=r"no name server is given.*NAMESRV_ADDR"):
        await acquire(nowhere)

    ends = await asyncio.gather(acquire(nowhere), acquire(nowhere), return_exceptions=True)
    assert [type(end) for end in ends] == [SettingsError, SettingsError]


async def test_a_client_may_have_a_name_instead_of_an_address() -> None:
    instance = await acquire(
        ClientOptions(namesrv="127.0.0.1:1", client_ip="my machine", instance_name="i")
    )

    assert instance.client_id == "my machine@i"
    assert len(instance.unique_ids.make()) == 32
    await release(instance)


async def test_an_instance_starts_once() -> None:
    instance = await acquire(OPTIONS)

    with pytest.raises(StateError, match="already started"):
        await instance.start()

    await release(instance)


def test_each_loop_has_an_instance_of_its_own() -> None:
    async def make() -> object:
        instance = await acquire(OPTIONS)
        await release(instance)
        return instance

    async def leak() -> object:
        instance = await acquire(OPTIONS)
        await instance.stop()
        return instance

    assert asyncio.run(leak()) is not asyncio.run(make())


def test_a_child_does_not_wait_for_a_lock_that_a_thread_of_the_parent_held() -> None:
    printed = run_script(
        """
        import asyncio
        import os
        from orbitmq.client.aio.instance import instances
        from orbitmq.client.options import ClientOptions

        async def use_an_instance():
            options = ClientOptions(namesrv="127.0.0.1:1", client_ip="127.0.0.1")
            await instances.release(await instances.acquire(options))
            print("works", flush=True)

        instances._guard.acquire()
        child = os.fork()
        if child == 0:
            asyncio.run(use_an_instance())
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        """
    )

    assert printed == "works\n"
