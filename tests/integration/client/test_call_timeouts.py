"""The option `call_timeout_ms` bounds every call without a timeout of its own."""

from __future__ import annotations

import re
import socket
from collections.abc import Awaitable, Callable, Iterator

import pytest

from orbitmq.client.aio.admin.reach import Reach
from orbitmq.client.aio.instance.client_instance import ClientInstance
from orbitmq.errors import OrbitError
from orbitmq.protocol.requests.configuration import GetBrokerConfig
from tests.integration.client.members import instance_of

TIMEOUT_MS = 70


@pytest.fixture(autouse=True, scope="module")
def patience() -> None:
    """Calls keep their usual timeouts, which this file tests."""


@pytest.fixture
def silent() -> Iterator[str]:
    """An address where the system accepts connections and nothing ever replies."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.parametrize(
    "call",
    [
        lambda instance, _: instance.name_servers.cluster_view(),
        lambda instance, _: instance.name_servers.route("orders"),
        lambda instance, address: instance.brokers.query(
            address, "orders", "key", messages_max=1, begin_ms=0, end_ms=1
        ),
        lambda instance, address: instance.brokers.unregister(address, "client"),
        lambda instance, address: Reach(lambda: instance).ask(address, GetBrokerConfig()),
    ],
    ids=["clusters", "route", "query", "unregister", "administration"],
)
async def test_a_call_without_a_reply_times_out_after_the_option(
    silent: str, call: Callable[[ClientInstance, str], Awaitable[object]]
) -> None:
    async with instance_of(silent, call_timeout_ms=TIMEOUT_MS) as instance:
        with pytest.raises(OrbitError) as failed:
            await call(instance, silent)

    # The time left once it was connected.
    limit = re.search(r"within (\d+) ms", str(failed.value))
    assert limit is not None, failed.value
    assert int(limit[1]) <= TIMEOUT_MS
