"""mqadmin says the same of our name server as of the official one.

The same brokers are registered with both, so whatever differs after normalising is a difference
between the name servers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import pytest

from tests.interop import wire
from tests.interop.drivers import JavaDriver
from tests.interop.official import OfficialBroker
from tests.interop.peers import NameServer
from tests.interop.timeouts import CLIENT_TIMEOUT_S
from tests.waiting import wait_until

pytestmark = pytest.mark.interop

# Cluster, broker, id, address and version; load figures follow, which change from call to call.
STEADY_COLUMNS = 5
WIPES_MAX = 10

T = TypeVar("T")


def printed_lines(
    admin: JavaDriver, server: NameServer, *arguments: str, complaint: str = ""
) -> list[str]:
    """What a command prints, in an order of its own: Java's hash tables decide the printed one."""
    printed = admin.mqadmin(*arguments, "-n", server.address, complaint=complaint)
    lines = (line.strip().rstrip(",") for line in printed.splitlines())
    return sorted(line.replace(server.address, "NAME-SERVER") for line in lines if line)


def same_of_both(name_servers: dict[str, NameServer], look: Callable[[NameServer], T]) -> T:
    """What both show, once they show the same: brokers come and go, and tell one after the other."""
    seen: dict[str, T] = {}

    def are_same() -> bool:
        seen.update({name: look(server) for name, server in name_servers.items()})
        return seen["ours"] == seen["official"]

    try:
        wait_until(are_same, timeout_s=CLIENT_TIMEOUT_S, what="both show the same")
    except TimeoutError:
        assert seen["ours"] == seen["official"]
    return seen["official"]


@pytest.fixture
def steady_broker(brokers: dict[str, OfficialBroker], new_topic: str) -> OfficialBroker:
    """A shared broker on which `new_topic` was created."""
    brokers["v5"].create_topic(new_topic)
    return brokers["v5"]


@pytest.mark.scenario("admin", "clusterList")
def test_cluster_list_is_the_same(
    admin: JavaDriver, brokers: dict[str, OfficialBroker], name_servers: dict[str, NameServer]
) -> None:
    def listed(server: NameServer) -> list[str]:
        return [
            line if line.startswith("#") else " ".join(line.split()[:STEADY_COLUMNS])
            # Compat: the tool of the 4.9 line misses a figure that 5.x brokers name differently.
            for line in printed_lines(admin, server, "clusterList", complaint="NullPointer")
        ]

    official = same_of_both(name_servers, listed)

    for broker in brokers.values():
        assert any(f"{broker.name} 0 {broker.address} V" in line for line in official)


@pytest.mark.scenario("admin", "topicList")
def test_topic_list_is_the_same(
    admin: JavaDriver,
    steady_broker: OfficialBroker,
    name_servers: dict[str, NameServer],
    new_topic: str,
) -> None:
    official = same_of_both(name_servers, lambda server: printed_lines(admin, server, "topicList"))

    assert {new_topic, steady_broker.name, "TBW102"} <= set(official)


@pytest.mark.scenario("admin", "topicRoute")
@pytest.mark.parametrize("form", [[], ["-l"]], ids=["json", "list"])
def test_topic_route_is_the_same(
    admin: JavaDriver,
    form: list[str],
    steady_broker: OfficialBroker,
    name_servers: dict[str, NameServer],
) -> None:
    official = same_of_both(
        name_servers,
        lambda server: printed_lines(admin, server, "topicRoute", "-t", "TBW102", *form),
    )

    assert any(steady_broker.address in line for line in official)


@pytest.mark.scenario("admin", "route as the admin client sees it")
def test_route_of_the_admin_client_is_the_same(
    admin: JavaDriver,
    steady_broker: OfficialBroker,
    name_servers: dict[str, NameServer],
    new_topic: str,
) -> None:
    official = same_of_both(name_servers, lambda server: admin.route(server.address, new_topic))

    assert [queue["brokerName"] for queue in official["queueDatas"]] == [steady_broker.name]


@pytest.mark.scenario("admin", "updateKvConfig and deleteKvConfig")
def test_kv_config_is_kept_and_deleted_the_same_way(
    admin: JavaDriver, name_servers: dict[str, NameServer], new_topic: str
) -> None:
    entry = {"namespace": "INTEROP", "key": new_topic}
    said = {}
    for name, server in name_servers.items():
        names = ["-s", entry["namespace"], "-k", entry["key"]]
        updated = printed_lines(admin, server, "updateKvConfig", *names, "-v", "a value")
        kept = wire.ask(server.address, wire.GET_KV_CONFIG, entry)
        deleted = printed_lines(admin, server, "deleteKvConfig", *names)
        gone = wire.ask(server.address, wire.GET_KV_CONFIG, entry)
        said[name] = (updated, kept.code, kept.fields, deleted, gone.code)

    assert said["ours"] == said["official"]
    _, kept_code, kept_fields, _, gone_code = said["official"]
    assert (kept_code, kept_fields["value"], gone_code) == (
        wire.SUCCESS,
        "a value",
        wire.QUERY_NOT_FOUND,
    )


@pytest.mark.scenario("admin", "wipeWritePerm and addWritePerm")
def test_write_permission_is_taken_and_given_back_the_same_way(
    admin: JavaDriver,
    steady_broker: OfficialBroker,
    name_servers: dict[str, NameServer],
    new_topic: str,
) -> None:
    read_only = {steady_broker.name: wire.READ_ONLY}

    def taken_and_given_back(server: NameServer) -> tuple[object, ...]:
        wipe = partial(printed_lines, admin, server, "wipeWritePerm", "-b", steady_broker.name)
        add = partial(printed_lines, admin, server, "addWritePerm", "-b", steady_broker.name)
        look = partial(wire.route_permissions, server.address, new_topic)
        said = wipe(), look(), add(), look()
        # A broker that reports its topics at this moment has its permission back: then once more.
        for _ in range(WIPES_MAX):
            if said[1] == read_only:
                break
            said = wipe(), look(), add(), look()
        return said

    _, without, _, restored = same_of_both(name_servers, taken_and_given_back)

    assert without == read_only
    assert restored == {steady_broker.name: wire.READ_WRITE}
