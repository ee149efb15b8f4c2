"""The blocking admin client: the calls of the asyncio one, against a cluster."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitmq.client import Admin, Message, Producer
from orbitmq.client.aio import Admin as AioAdmin
from orbitmq.embedded import Cluster
from orbitmq.errors import ClusterMissingError, RouteNotFoundError, StateError
from orbitmq.model.groups import GroupConfig

ROOT = Path(__file__).parents[4]
NOUNS = {name: type(noun) for name, noun in vars(AioAdmin()).items() if not name.startswith("_")}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(in_memory=True) as cluster:
        yield cluster


@pytest.fixture
def admin(cluster: Cluster) -> Iterator[Admin]:
    with Admin(namesrv=cluster.namesrv, call_timeout_ms=60_000) as admin:
        yield admin


def _methods(kind: type[object]) -> set[str]:
    return {name for name in vars(kind) if not name.startswith("_")}


@pytest.mark.parametrize("noun", NOUNS)
def test_every_noun_has_all_methods_with_their_arguments_and_descriptions(noun: str) -> None:
    blocking, on_asyncio = type(getattr(Admin(), noun)), NOUNS[noun]

    assert _methods(blocking) == _methods(on_asyncio)
    for name in _methods(blocking):
        ours, theirs = getattr(blocking, name), getattr(on_asyncio, name)
        signature = inspect.signature(theirs)
        returns = signature.return_annotation.removeprefix("Async")
        assert inspect.signature(ours) == signature.replace(return_annotation=returns)
        assert ours.__doc__ == theirs.__doc__


def test_it_asks_and_changes_a_cluster(cluster: Cluster, admin: Admin) -> None:
    assert admin.topics.create("orders", queues=2) == {
        "broker-a": cluster.broker("broker-a").address
    }
    with Producer(
        "shop", namesrv=cluster.namesrv, send_timeout_ms=60_000, call_timeout_ms=60_000
    ) as producer:
        sent = [producer.send(Message("orders", f"number {n}", keys=f"k{n}")) for n in range(40)]
    admin.groups.create(GroupConfig(name="billing"))
    admin.offsets.set("billing", dict.fromkeys(admin.offsets.queues("orders"), 5))
    admin.key_values.put("shop", "colour", "red")

    assert "orders" in admin.topics.names()
    assert admin.groups.progress("billing", topic="orders").lag == 30
    assert admin.messages.by_key("orders", "k7")[0].body == b"number 7"
    assert admin.messages.by_id(sent[3].message_id, topic="orders").body == b"number 3"
    assert admin.key_values.all("shop") == {"colour": "red"}
    assert "broker-a" in admin.brokers.clusters().brokers


def test_messages_of_a_time_range_come_one_by_one(cluster: Cluster, admin: Admin) -> None:
    admin.topics.create("parcels", queues=2)
    with Producer(
        "shop", namesrv=cluster.namesrv, send_timeout_ms=60_000, call_timeout_ms=60_000
    ) as producer:
        for number in range(70):
            producer.send(Message("parcels", str(number)))

    found = admin.messages.between("parcels", 0, 2**62)
    first = next(found)

    assert {int(first.body), *(int(message.body) for message in found)} == set(range(70))
    assert list(admin.messages.between("parcels", 0, 1)) == []


def test_errors_are_those_of_the_asyncio_client(admin: Admin) -> None:
    with pytest.raises(ClusterMissingError, match="did you mean broker-a"):
        admin.brokers.runtime("broker-b")
    with pytest.raises(RouteNotFoundError):
        admin.topics.route("nothing")
    with pytest.raises(RouteNotFoundError):
        next(admin.messages.between("nothing", 0, 1))


def test_it_is_used_between_start_and_stop(cluster: Cluster) -> None:
    admin = Admin(namesrv=cluster.namesrv, call_timeout_ms=60_000)
    with pytest.raises(StateError, match="the admin client is not started"):
        admin.topics.names()

    with admin:
        admin.topics.names()

    with pytest.raises(StateError, match="the admin client is stopped"):
        admin.topics.names()


def test_the_page_lists_every_call() -> None:
    page = (ROOT / "docs" / "clients" / "administering.md").read_text()
    rows = dict(re.findall(r"^\| `admin\.(\w+)` \| (.*) \|$", page, re.MULTILINE))

    assert set(rows) == set(NOUNS)
    for noun, calls in rows.items():
        assert set(re.findall(r"`(\w+)`", calls)) == _methods(NOUNS[noun])
